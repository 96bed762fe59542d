//! How two processes of a user on one host get to know each other: each gives the other descriptors, once.
//!
//! Greetings travel over the slots' sockets, whose kernel-checked credentials say whose they are. What the descriptors are for
//! is the business of whoever sends them.
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::slot::{MAGIC, Slot, array, slot_name};
use crate::sys;
use crate::udp::UdpLink;

/// Kind byte of a greeting.
pub(crate) const KIND_HELLO: u8 = 4;
/// What both sides must agree on beside the message itself: layouts of shared memory.
const VERSION: u8 = 2;
/// Greetings kept until somebody asks for them.
const KEPT: usize = 256;
/// Tries at a peer whose socket is full, 200 µs apart.
const TRIES: u32 = 50;

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Tells this process from any other that ever had its slots.
    pub nonce: u64,
    /// An answer is wanted.
    pub wants_answer: bool,
    /// Longest packet payload it takes, in bytes; 0: it does not want to share memory.
    pub mtu: u32,
    /// Its slots, the one to answer to first.
    pub slots: Vec<Slot>,
}

/// A greeting received.
#[derive(Debug)]
pub struct Greeting {
    /// What it says.
    pub hello: Hello,
    /// The sender's process, as this process sees it; 0 from another PID namespace.
    pub pid: i32,
    /// Descriptors that came with it.
    pub fds: Vec<OwnedFd>,
}

impl Hello {
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&[KIND_HELLO, VERSION, u8::from(self.wants_answer), 0]);
        out.extend_from_slice(&self.mtu.to_le_bytes());
        out.extend_from_slice(&self.nonce.to_le_bytes());
        self.slots.iter().for_each(|slot| out.extend_from_slice(&slot.to_le_bytes()));
        out
    }

    /// Takes a whole message apart, whose magic and kind were looked at.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Hello> {
        let [_, version, answer, _] = array::<4>(bytes, 8)?;
        if version != VERSION {
            return None;
        }
        let mtu = u32::from_le_bytes(array(bytes, 12)?);
        let nonce = u64::from_le_bytes(array(bytes, 16)?);
        let slots: Vec<Slot> =
            bytes[24..].chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect();
        (!slots.is_empty()).then_some(Hello { nonce, wants_answer: answer != 0, mtu, slots })
    }
}

impl UdpLink {
    /// Greets the owner of a slot.
    ///
    /// # Errors
    /// `ConnectionRefused` when nobody owns it; what else the kernel says.
    pub fn greet(&self, slot: Slot, hello: &Hello, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let sockets = self.sockets();
        let claim = sockets.claims.first().ok_or(io::ErrorKind::NotConnected)?;
        let (name, message) = (slot_name(self.uid, slot), hello.emit());
        let mut tries = 0;
        loop {
            let Err(error) = sys::send_local(&claim.fd, &name, &[&message], fds) else { return Ok(()) };
            tries += 1;
            match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) if tries < TRIES => {
                    std::thread::sleep(Duration::from_micros(200));
                }
                _ => return Err(error),
            }
        }
    }

    /// Greetings that came since the last call.
    pub fn greetings(&self) -> Vec<Greeting> {
        if !self.greeted.load(Relaxed) {
            return Vec::new();
        }
        let mut kept = self.greetings.lock();
        self.greeted.store(false, Relaxed);
        std::mem::take(&mut *kept)
    }

    pub(crate) fn keep_greeting(&self, greeting: Greeting) {
        let mut kept = self.greetings.lock();
        if kept.len() < KEPT {
            kept.push(greeting);
            self.greeted.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_greeting_survives_the_way() {
        let hello = Hello { nonce: 0x0123_4567_89ab_cdef, wants_answer: true, mtu: 65536, slots: vec![7, 9] };
        let bytes = hello.emit();
        assert_eq!(Hello::parse(&bytes), Some(hello));
        for len in 0..26 {
            assert_eq!(Hello::parse(&bytes[..len]), None, "cut to {len} bytes");
        }
        let mut other = bytes;
        other[9] = VERSION + 1;
        assert_eq!(Hello::parse(&other), None, "another version");
    }
}
