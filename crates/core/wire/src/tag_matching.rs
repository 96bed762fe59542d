//! Headers of tag matching at the front of a SEND payload (`infiniband/tm_types.h`). The TMH comes
//! first. In a rendezvous request and in its end, the RVH follows. All fields are in network byte
//! order.

/// Bytes of a TMH.
pub const TMH_LEN: usize = 16;
/// Bytes of a TMH and an RVH.
pub const RENDEZVOUS_LEN: usize = 32;

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TagOp {
    /// No tag: the rest of the header is unused.
    NoTag = 0,
    /// A rendezvous request: the receiver reads the data.
    Rendezvous = 1,
    /// The end of a rendezvous: the receiver has read the data.
    Fin = 2,
    /// The data follows.
    Eager = 3,
}

/// A tag matching header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tmh {
    /// The kind of the message.
    pub op: TagOp,
    /// A word for the application's own use.
    pub app_ctx: u32,
    /// The tag.
    pub tag: u64,
}

/// A rendezvous header: the location of the data at the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rvh {
    /// Address.
    pub va: u64,
    /// Key.
    pub rkey: u32,
    /// Length in bytes.
    pub len: u32,
}

/// Reads four bytes at an offset; `None` if there are fewer.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Reads eight bytes at an offset; `None` if there are fewer.
fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Tmh {
    /// Reads the start of a message; `None` if the message is too short or of an unknown kind.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let op = match bytes.first()? {
            0 => TagOp::NoTag,
            1 => TagOp::Rendezvous,
            2 => TagOp::Fin,
            3 => TagOp::Eager,
            _ => return None,
        };
        Some(Tmh { op, app_ctx: word(bytes, 4)?, tag: long(bytes, 8)? })
    }
}

impl Rvh {
    /// Reads the header after the TMH; `None` if the message is too short.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        Some(Rvh { va: long(bytes, 16)?, rkey: word(bytes, 24)?, len: word(bytes, 28)? })
    }
}

/// The message that ends a rendezvous: both headers of the request, with another opcode.
#[must_use]
pub fn fin(tmh: Tmh, rvh: Rvh) -> [u8; RENDEZVOUS_LEN] {
    headers(Tmh { op: TagOp::Fin, ..tmh }, rvh)
}

/// The bytes of both headers.
#[must_use]
pub fn headers(tmh: Tmh, rvh: Rvh) -> [u8; RENDEZVOUS_LEN] {
    let mut out = [0; RENDEZVOUS_LEN];
    out[0] = tmh.op as u8;
    out[4..8].copy_from_slice(&tmh.app_ctx.to_be_bytes());
    out[8..16].copy_from_slice(&tmh.tag.to_be_bytes());
    out[16..24].copy_from_slice(&rvh.va.to_be_bytes());
    out[24..28].copy_from_slice(&rvh.rkey.to_be_bytes());
    out[28..].copy_from_slice(&rvh.len.to_be_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tm_1_headers_stand_as_in_tm_types_h() {
        let tmh = Tmh { op: TagOp::Rendezvous, app_ctx: 0x0102_0304, tag: 0x1112_1314_1516_1718 };
        let rvh = Rvh { va: 0x2122_2324_2526_2728, rkey: 0x3132_3334, len: 0x4142_4344 };
        let bytes = headers(tmh, rvh);
        let want = [
            1, 0, 0, 0, 1, 2, 3, 4, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22,
            0x23, 0x24, 0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34, 0x41, 0x42, 0x43, 0x44,
        ];
        assert_eq!(bytes, want);
        assert_eq!((Tmh::parse(&bytes), Rvh::parse(&bytes)), (Some(tmh), Some(rvh)));
        assert_eq!(fin(tmh, rvh)[0], 2);
        assert_eq!(fin(tmh, rvh)[1..], bytes[1..]);
    }

    #[test]
    fn what_is_too_short_or_unknown_is_no_header() {
        let whole = [3; 32];
        for len in 0..16 {
            assert_eq!(Tmh::parse(&whole[..len]), None, "{len}");
        }
        assert_eq!(Rvh::parse(&whole[..31]), None);
        assert_eq!(Tmh::parse(&[4; 16]), None);
    }
}
