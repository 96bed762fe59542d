//! What is said of a connection, as bytes.
use adverb_cm::mad::{Dreq, Message};
use adverb_cm::{MAD_LEN, Path};
use std::net::{IpAddr, Ipv6Addr};

/// Bytes of a message.
pub(crate) const LEN: usize = 48;

/// A connection, as a DREQ needs it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The addresses between which its MADs travel.
    pub path: Path,
    /// Communication id of this end.
    pub local_id: u32,
    /// Communication id of the peer.
    pub remote_id: u32,
    /// Queue pair of the peer.
    pub remote_qpn: u32,
}

/// What a process says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// It has this connection now.
    Entrust(Record),
    /// The connection with this id of its own is over.
    Withdraw(u32),
}

impl Record {
    /// The MAD that ends it.
    #[must_use]
    pub fn dreq(&self) -> [u8; MAD_LEN] {
        let Record { local_id, remote_id, remote_qpn, .. } = *self;
        // Nobody waits for the answer, so the transaction's number says nothing.
        let transaction = u64::from(local_id) << 32 | u64::from(remote_id);
        Message::from(Dreq { local_id, remote_id, remote_qpn, ..Dreq::default() }).emit(transaction)
    }
}

impl Said {
    pub(crate) fn emit(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        match self {
            Said::Entrust(record) => {
                put(0, &1_u32.to_le_bytes());
                put(4, &record.local_id.to_le_bytes());
                put(8, &record.remote_id.to_le_bytes());
                put(12, &record.remote_qpn.to_le_bytes());
                put(16, &to_v6(record.path.local).octets());
                put(32, &to_v6(record.path.remote).octets());
            }
            Said::Withdraw(local_id) => put(4, &local_id.to_le_bytes()),
        }
        out
    }

    /// `None`: no message of ours.
    pub(crate) fn parse(bytes: &[u8; LEN]) -> Option<Said> {
        let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
        let address = |at: usize| <[u8; 16]>::try_from(&bytes[at..at + 16]).map(Ipv6Addr::from).ok();
        let local_id = word(4)?;
        match word(0)? {
            0 => Some(Said::Withdraw(local_id)),
            1 => {
                let path = Path { local: from_v6(address(16)?), remote: from_v6(address(32)?) };
                let same_family = path.local.is_ipv4() == path.remote.is_ipv4();
                let remote_qpn = word(12)?;
                let (possible, remote_id) = (same_family && remote_qpn < 1 << 24, word(8)?);
                possible.then_some(Said::Entrust(Record { path, local_id, remote_id, remote_qpn }))
            }
            _ => None,
        }
    }
}

fn to_v6(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn from_v6(ip: Ipv6Addr) -> IpAddr {
    ip.to_ipv4_mapped().map_or(IpAddr::V6(ip), IpAddr::V4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucm_12_a_record_comes_through_and_gives_the_dreq_of_its_connection() {
        for (local, remote) in [("192.0.2.1", "192.0.2.2"), ("fe80::1", "2001:db8::2")] {
            let path = Path { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
            let record =
                Record { path, local_id: 0x1234_5678, remote_id: 0x9abc_def0, remote_qpn: 0x1f_0004 };
            let said = Said::Entrust(record);
            assert_eq!(Said::parse(&said.emit()), Some(said));
            let Ok((_, Message::Dreq(dreq))) = Message::parse(&record.dreq()) else { panic!("no DREQ") };
            assert_eq!((dreq.local_id, dreq.remote_id), (record.local_id, record.remote_id));
            assert_eq!(dreq.remote_qpn, record.remote_qpn);
        }
        let over = Said::Withdraw(7);
        assert_eq!(Said::parse(&over.emit()), Some(over));
    }

    #[test]
    fn other_bytes_are_no_message() {
        let path = Path { local: "192.0.2.1".parse().unwrap(), remote: "192.0.2.2".parse().unwrap() };
        let good = Said::Entrust(Record { path, local_id: 1, remote_id: 2, remote_qpn: 3 }).emit();
        // What it says, a queue pair number of more than 24 bits, addresses of two families.
        for (at, byte) in [(0, 2), (3, 1), (15, 1), (16, 0x20)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(Said::parse(&bad), None, "byte {at}");
        }
    }
}
