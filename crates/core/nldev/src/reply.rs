//! Replies, collected in datagrams.

use crate::numbers::{NLA_F_NESTED, NLM_F_CAPPED, NLMSG_DONE, NLMSG_ERROR};
use crate::request::{HEADER, Message};

/// Largest datagram of a reply in bytes. Receivers offer at least a page.
pub const DATAGRAM: usize = 4096;

/// Upper limit of a message in bytes: about twenty attributes, with names of at most 64 bytes, or
/// all counters.
const MESSAGE: usize = 1024;

/// Collects messages and passes full datagrams to `send`.
pub struct Reply<'s> {
    bytes: [u8; DATAGRAM],
    len: usize,
    port: u32,
    send: &'s mut dyn FnMut(&[u8]),
}

impl<'s> Reply<'s> {
    pub fn new(port: u32, send: &'s mut dyn FnMut(&[u8])) -> Self {
        Self { bytes: [0; DATAGRAM], len: 0, port, send }
    }

    /// Sends the collected messages.
    pub fn flush(&mut self) {
        if let Some(bytes) = self.bytes.get(..self.len)
            && !bytes.is_empty()
        {
            (self.send)(bytes);
        }
        self.len = 0;
    }

    /// Adds a message that answers `to`; `fill` writes its attributes.
    pub fn message(
        &mut self,
        to: &Message<'_>,
        kind: u16,
        flags: u16,
        fill: impl FnOnce(&mut Self),
    ) {
        if self.len.saturating_add(MESSAGE) > DATAGRAM {
            self.flush();
        }
        let start = self.len;
        self.put(&0_u32.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(&flags.to_ne_bytes());
        self.put(&to.seq.to_ne_bytes());
        self.put(&self.port.to_ne_bytes());
        fill(self);
        let len = self.len.saturating_sub(start);
        self.set(start, &(len as u32).to_ne_bytes());
    }

    /// Adds the result of a request: 0, or an errno.
    pub fn result(&mut self, to: &Message<'_>, error: i32) {
        self.message(to, NLMSG_ERROR, NLM_F_CAPPED, |reply| {
            reply.put(&error.wrapping_neg().to_ne_bytes());
            reply.put(&to.len.to_ne_bytes());
            reply.put(&to.kind.to_ne_bytes());
            reply.put(&to.flags.to_ne_bytes());
            reply.put(&to.seq.to_ne_bytes());
            reply.put(&to.pid.to_ne_bytes());
        });
    }

    /// Adds the end of a dump.
    pub fn done(&mut self, to: &Message<'_>, flags: u16) {
        self.message(to, NLMSG_DONE, flags, |reply| reply.put(&0_i32.to_ne_bytes()));
    }

    pub fn u8(&mut self, kind: u16, value: u8) {
        self.attribute(kind, |reply| reply.put(&[value]));
    }

    pub fn u32(&mut self, kind: u16, value: u32) {
        self.attribute(kind, |reply| reply.put(&value.to_ne_bytes()));
    }

    pub fn u64(&mut self, kind: u16, value: u64) {
        self.attribute(kind, |reply| reply.put(&value.to_ne_bytes()));
    }

    /// Adds a string with its terminating zero.
    pub fn string(&mut self, kind: u16, text: &[u8]) {
        self.attribute(kind, |reply| {
            reply.put(text);
            reply.put(&[0]);
        });
    }

    /// Adds an attribute that contains attributes.
    pub fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        self.attribute(kind | NLA_F_NESTED, fill);
    }

    fn attribute(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) {
        let start = self.len;
        self.put(&0_u16.to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        fill(self);
        let len = self.len.saturating_sub(start);
        self.set(start, &(len as u16).to_ne_bytes());
        while !self.len.is_multiple_of(4) && self.len < DATAGRAM {
            self.put(&[0]);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        self.set(self.len, bytes);
        self.len = self.len.saturating_add(bytes.len()).min(DATAGRAM);
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(at).zip(bytes) {
            *to = *from;
        }
    }
}

const _: () = assert!(HEADER + 20 <= MESSAGE && MESSAGE <= DATAGRAM);
