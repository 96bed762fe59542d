//! Requests: messages and their attributes.

use crate::numbers::NLA_TYPE_MASK;

/// Length of `struct nlmsghdr` in bytes.
pub const HEADER: usize = 16;

/// A message of a datagram.
#[derive(Clone, Copy)]
pub struct Message<'a> {
    pub len: u32,
    pub kind: u16,
    pub flags: u16,
    pub seq: u32,
    pub pid: u32,
    attributes: &'a [u8],
}

/// Reads a number in the machine's byte order.
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Rounds up to a multiple of four, at which messages and attributes begin.
fn aligned(len: usize) -> usize {
    len.saturating_add(3) & !3
}

/// Takes the first message from a datagram. A datagram ends at the first incomplete message, as in
/// the kernel.
pub fn next<'a>(datagram: &mut &'a [u8]) -> Option<Message<'a>> {
    let bytes = *datagram;
    let len = u32_at(bytes, 0)?;
    let size = usize::try_from(len).ok()?;
    let attributes = bytes.get(..size)?.get(HEADER..)?;
    let message = Message {
        len,
        kind: u16_at(bytes, 4)?,
        flags: u16_at(bytes, 6)?,
        seq: u32_at(bytes, 8)?,
        pid: u32_at(bytes, 12)?,
        attributes,
    };
    *datagram = bytes.get(aligned(size)..).unwrap_or_default();
    Some(message)
}

impl<'a> Message<'a> {
    /// The bytes of an attribute. The last attribute of this type counts, as in the kernel.
    fn find(&self, kind: u16) -> Option<&'a [u8]> {
        let mut left = self.attributes;
        let mut found = None;
        while let (Some(len), Some(which)) = (u16_at(left, 0), u16_at(left, 2)) {
            let len = usize::from(len);
            let Some(payload) = left.get(..len).and_then(|a| a.get(4..)) else { break };
            if which & NLA_TYPE_MASK == kind {
                found = Some(payload);
            }
            left = left.get(aligned(len)..).unwrap_or_default();
        }
        found
    }

    /// The command, without the client.
    pub fn command(&self) -> u16 {
        self.kind & 0x3ff
    }

    /// Whether the request has this attribute.
    pub fn has(&self, kind: u16) -> bool {
        self.find(kind).is_some()
    }

    /// A 32-bit number.
    pub fn u32(&self, kind: u16) -> Option<u32> {
        u32_at(self.find(kind)?, 0)
    }

    /// A string, without its terminating zero.
    pub fn string(&self, kind: u16) -> Option<&'a [u8]> {
        self.find(kind)?.split(|b| *b == 0).next()
    }
}
