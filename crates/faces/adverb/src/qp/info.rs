//! What a peer must know of a queue pair.
use adverb_device::engine::{Gid, PathMtu, QpType};
use thiserror::Error;

/// What a peer must know of a queue pair to connect to it. The program exchanges these values
/// itself, as bytes of a fixed format ([`QpInfo::to_bytes`]) or field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpInfo {
    /// The transport.
    pub qp_type: QpType,
    /// The queue pair number (24 bits).
    pub number: u32,
    /// The first PSN that the queue pair sends (24 bits).
    pub first_psn: u32,
    /// The GID of the queue pair.
    pub gid: Gid,
    /// The largest path MTU that the queue pair supports.
    pub path_mtu: PathMtu,
    /// The most reads and atomics that the queue pair has under way at the same time.
    pub reads_out: u8,
    /// The most reads and atomics that the queue pair answers at the same time.
    pub reads_in: u8,
    /// The Q_Key that incoming datagrams must carry (UD).
    pub qkey: u32,
}

/// Why bytes are not a valid [`QpInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InfoError {
    /// Another version of the format.
    #[error("queue pair data of version {0}, not {VERSION}")]
    Version(u8),
    /// No transport has this code.
    #[error("no queue pair type has code {0}")]
    QpType(u8),
    /// No path MTU has this code.
    #[error("no path MTU has code {0}")]
    PathMtu(u8),
    /// A number of more than 24 bits.
    #[error("{field} is {value:#x}, more than 24 bits")]
    TooLarge {
        /// The field.
        field: &'static str,
        /// The value of the field.
        value: u32,
    },
    /// The GID is zero.
    #[error("the GID is zero")]
    NoAddress,
}

const VERSION: u8 = 1;

/// The codes of `ibv_qp_type`.
const TYPES: [(QpType, u8); 5] = [
    (QpType::Rc, 2),
    (QpType::Uc, 3),
    (QpType::Ud, 4),
    (QpType::XrcSend, 9),
    (QpType::XrcRecv, 10),
];

impl QpInfo {
    /// The number of bytes of [`QpInfo::to_bytes`].
    pub const ENCODED_LEN: usize = 36;

    /// The encoded form: version, type, MTU code, two read depths, three reserved bytes. Then the
    /// queue pair number, the first PSN and the Q_Key, four bytes each in network byte order. Then
    /// the GID.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; QpInfo::ENCODED_LEN] {
        let code = TYPES.iter().find(|(t, _)| *t == self.qp_type).map_or(0, |(_, code)| *code);
        let mut bytes = [0; QpInfo::ENCODED_LEN];
        bytes[..5].copy_from_slice(&[
            VERSION,
            code,
            self.path_mtu as u8,
            self.reads_out,
            self.reads_in,
        ]);
        bytes[8..12].copy_from_slice(&self.number.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.first_psn.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[20..].copy_from_slice(&self.gid.0);
        bytes
    }

    /// Reads the bytes of [`QpInfo::to_bytes`]. The reserved bytes are ignored.
    ///
    /// # Errors
    /// [`InfoError`] with the invalid field.
    pub fn from_bytes(bytes: &[u8; QpInfo::ENCODED_LEN]) -> Result<QpInfo, InfoError> {
        let [version, code, mtu, reads_out, reads_in, ..] = *bytes;
        if version != VERSION {
            return Err(InfoError::Version(version));
        }
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let number = |field, value| match value {
            0..=0x00ff_ffff => Ok(value),
            _ => Err(InfoError::TooLarge { field, value }),
        };
        let (_, gid) = bytes.split_last_chunk::<16>().ok_or(InfoError::NoAddress)?;
        let found = TYPES.iter().find(|(_, c)| *c == code);
        let info = QpInfo {
            qp_type: found.map(|(t, _)| *t).ok_or(InfoError::QpType(code))?,
            path_mtu: PathMtu::from_code(mtu.into()).ok_or(InfoError::PathMtu(mtu))?,
            reads_out,
            reads_in,
            number: number("the queue pair number", word(8))?,
            first_psn: number("the first packet number", word(12))?,
            qkey: word(16),
            gid: Gid(*gid),
        };
        if info.gid.is_zero() { Err(InfoError::NoAddress) } else { Ok(info) }
    }

    /// Whether a queue pair of this type can be connected to `peer`.
    #[must_use]
    pub fn connects_to(&self, peer: &QpInfo) -> bool {
        use QpType::{Rc, Uc, XrcRecv, XrcSend};
        matches!(
            (self.qp_type, peer.qp_type),
            (Rc, Rc) | (Uc, Uc) | (XrcSend, XrcRecv) | (XrcRecv, XrcSend)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{InfoError, QpInfo, TYPES};
    use adverb_device::engine::{Gid, PathMtu, QpType};
    use proptest::prelude::*;

    fn info() -> QpInfo {
        QpInfo {
            qp_type: QpType::Rc,
            number: 0x12_3456,
            first_psn: 0xff_ffff,
            gid: Gid::from_ipv4([127, 0, 0, 1]),
            path_mtu: PathMtu::Mtu4096,
            reads_out: 3,
            reads_in: 128,
            qkey: 0x8000_0001,
        }
    }

    #[test]
    fn every_field_is_checked() {
        let spoiled = |at: usize, value: u8| {
            let mut bytes = info().to_bytes();
            bytes[at] = value;
            QpInfo::from_bytes(&bytes)
        };
        assert_eq!(spoiled(0, 2), Err(InfoError::Version(2)));
        assert_eq!(spoiled(1, 7), Err(InfoError::QpType(7)));
        assert_eq!(spoiled(2, 0), Err(InfoError::PathMtu(0)));
        assert_eq!(spoiled(2, 6), Err(InfoError::PathMtu(6)));
        assert!(matches!(spoiled(8, 1), Err(InfoError::TooLarge { value: 0x0112_3456, .. })));
        assert!(matches!(spoiled(12, 0xff), Err(InfoError::TooLarge { value: 0xffff_ffff, .. })));
        let mut zero = info();
        zero.gid = Gid::default();
        assert_eq!(QpInfo::from_bytes(&zero.to_bytes()), Err(InfoError::NoAddress));
        assert_eq!(spoiled(6, 0xff), Ok(info()), "reserved");
    }

    #[test]
    fn all_types_cross() {
        for (qp_type, _) in TYPES {
            let info = QpInfo { qp_type, ..info() };
            assert_eq!(QpInfo::from_bytes(&info.to_bytes()), Ok(info));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in any::<[u8; QpInfo::ENCODED_LEN]>()) {
            // No panic. Accepted bytes encode to the same value again.
            if let Ok(info) = QpInfo::from_bytes(&bytes) {
                prop_assert_eq!(QpInfo::from_bytes(&info.to_bytes()), Ok(info));
            }
        }
    }
}
