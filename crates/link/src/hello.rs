//! How two processes of a user on one host get to know each other: each gives the other
//! descriptors, once.
//!
//! Greetings travel over connections whose other end was proved to be the same user's
//! ([`crate::handover`]): nothing leaves before that. What the descriptors are for is the business
//! of whoever sends them.
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::handover::{LineId, Untold};
use crate::owner::{self, Proof};
use crate::slot::{MAGIC, MAX_SLOT, MIN_SLOT, Slot, array, slot_name};
use crate::udp::UdpLink;

/// Kind byte of a greeting.
pub(crate) const KIND_HELLO: u8 = 4;
/// What both sides must agree on beside the message itself: layouts of shared memory.
const VERSION: u8 = 3;
/// Greetings kept until somebody asks for them, as each holds descriptors. Those that come beyond
/// are closed.
pub(crate) const KEPT: usize = 16;
/// Descriptors of a greeting that are kept, at most.
const GIFTS: usize = 4;
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
        // Each of them is kept: no more than there are, and none that nobody can have.
        let slots: Vec<Slot> = bytes[24..]
            .chunks_exact(2)
            .take(usize::from(MAX_SLOT) + 1)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
            .collect();
        let possible = !slots.is_empty()
            && slots.len() <= usize::from(MAX_SLOT)
            && slots.iter().all(|slot| (MIN_SLOT..=MAX_SLOT).contains(slot));
        possible.then_some(Hello { nonce, wants_answer: answer != 0, mtu, slots })
    }
}

impl UdpLink {
    /// Greets the owner of a slot, and says over which connection: [`UdpLink::ended`] names the
    /// connection when its other end has gone.
    ///
    /// # Errors
    /// `ConnectionRefused` when nobody owns it, `PermissionDenied` with the user when another user
    /// holds its name; what else the kernel says.
    pub fn greet(&self, slot: Slot, hello: &Hello, fds: &[BorrowedFd<'_>]) -> io::Result<LineId> {
        let message = hello.emit();
        for _ in 1..TRIES {
            match self.tell(slot, &[&message], fds) {
                Err(Untold::Full) => std::thread::sleep(Duration::from_micros(200)),
                Err(Untold::NoOwner) => {
                    // Somebody may hold the name and not listen.
                    return Err(self.other_owner(slot).map_or(Untold::NoOwner, Untold::OtherUser).into());
                }
                result => return Ok(result?),
            }
        }
        Ok(self.tell(slot, &[&message], fds)?)
    }

    /// Does the kernel say that the process listens at the slot's name now? The number is as this
    /// process sees it, 0 for all of other PID namespaces.
    pub fn is_held_by(&self, slot: Slot, pid: i32) -> bool {
        let held = self
            .prove_owner(&slot_name(self.uid, slot))
            .and_then(|fd| owner::prove(&fd, self.uid).map_err(Untold::Other));
        matches!(held, Ok(Proof::Own(holder)) if holder == pid)
    }

    /// Greetings that came since the last call. [`UdpLink::ended`] comes before, as a process may
    /// have taken another's slot.
    pub fn greetings(&self) -> Vec<Greeting> {
        if !self.greeted.load(Relaxed) {
            return Vec::new();
        }
        let mut kept = self.greetings.lock();
        self.greeted.store(false, Relaxed);
        std::mem::take(&mut *kept)
    }

    /// Connections whose other ends have gone since the last call. Another process may own the slot
    /// by now, and be greeted already.
    pub fn ended(&self) -> Vec<LineId> {
        if !self.greeted.load(Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut *self.ended.lock())
    }

    pub(crate) fn keep_ended(&self, line: LineId) {
        self.ended.lock().push(line);
        self.greeted.store(true, Relaxed);
    }

    pub(crate) fn keep_greeting(&self, greeting: Greeting) {
        let mut kept = self.greetings.lock();
        if kept.len() < KEPT && greeting.fds.len() <= GIFTS {
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

    /// TRU-3: what is kept of a greeting is bounded by the number of slots.
    #[test]
    fn a_greeting_names_slots_that_there_are() {
        let hello = |slots: Vec<Slot>| Hello { nonce: 1, wants_answer: false, mtu: 4096, slots };
        for (slots, right) in [
            (vec![MIN_SLOT, MAX_SLOT], true),
            (vec![0], false),
            (vec![5, MAX_SLOT + 1], false),
            (vec![u16::MAX], false),
            ((MIN_SLOT..=MAX_SLOT).collect(), true),
            (vec![7; usize::from(MAX_SLOT) + 1], false),
        ] {
            let count = slots.len();
            assert_eq!(Hello::parse(&hello(slots).emit()).is_some(), right, "{count} slots");
        }
    }

    /// TRU-3: greetings that nobody asks for cost a bounded number of descriptors.
    #[test]
    #[cfg(not(loom))]
    fn tru_3_few_greetings_are_kept() {
        let link = UdpLink::new(crate::Config { port: 0, steer: false, ..Default::default() }).unwrap();
        let gifts = |count| -> Vec<OwnedFd> {
            (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect()
        };
        let hello = || Hello { nonce: 1, wants_answer: false, mtu: 4096, slots: vec![7] };
        for count in (0..300).map(|n| if n % 2 == 0 { 4 } else { 28 }) {
            link.keep_greeting(Greeting { hello: hello(), pid: 1, fds: gifts(count) });
        }
        let kept = link.greetings();
        assert_eq!(kept.len(), KEPT);
        assert!(kept.iter().map(|greeting| greeting.fds.len()).sum::<usize>() <= 64);
    }
}
