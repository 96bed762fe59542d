//! Records of a ring.
use crate::host::MTU;
use adverb_wire::MAX_HEADER_LEN;

/// A packet. Every record of a packet has this bit.
pub(in crate::node) const PACKET: u32 = 1;
/// The payload is elsewhere. The headers are followed by the payload's address, length, epoch and
/// kind of access.
pub(in crate::node) const BY_REFERENCE: u32 = 2;
/// The sender cuts messages by the MTU of the ring, not by the MTU of the path.
pub(in crate::node) const LONG: u32 = 4;

/// Address, length, epoch, kind of access.
pub(in crate::node) const REFERENCE: usize = 8 + 4 + 4 + 1;
/// The longest record: headers and a payload.
pub(in crate::node) const LONGEST: usize = MAX_HEADER_LEN + MTU as usize;
/// Records taken from a peer at a time.
pub(in crate::node) const BUDGET: usize = 64;

/// The place of a payload, in the sender's address space or file.
pub(in crate::node) struct Reference {
    pub(in crate::node) addr: u64,
    pub(in crate::node) len: u32,
    pub(in crate::node) epoch: u32,
    pub(in crate::node) how: u8,
}

impl Reference {
    pub(in crate::node) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; REFERENCE] = bytes.get(..REFERENCE)?.try_into().ok()?;
        let (addr, rest) = bytes.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<4>()?;
        let (epoch, rest) = rest.split_first_chunk::<4>()?;
        let (addr, len) = (u64::from_le_bytes(*addr), u32::from_le_bytes(*len));
        Some(Reference { addr, len, epoch: u32::from_le_bytes(*epoch), how: rest[0] })
    }
}
