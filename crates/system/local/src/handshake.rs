//! How two processes of a user on one host get to know each other: each sends the other its
//! descriptors, once.
//!
//! Handshake messages travel over connections with a proved user at the other end
//! ([`crate::delivery`]): nothing is sent before the proof. Only the caller knows the meaning of
//! the descriptors.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use adverb_os::owner::{self, Proof};

use crate::connection::{ConnectionId, Untold};
use crate::local::Local;
use crate::message::{HandshakeMessage, ReceivedHandshake};
use crate::slot::{Slot, slot_name};

/// The largest number of kept handshake messages, because each holds descriptors. Further messages
/// are closed.
pub(crate) const KEPT: usize = 16;
/// The largest number of descriptors of a kept handshake message.
const MOST_FDS: usize = 4;
/// Attempts to send to a peer with a full socket, 200 µs apart.
const TRIES: u32 = 50;

impl Local {
    /// Sends a handshake message to the owner of a slot, and returns the id of the connection.
    /// [`Local::ended`] reports this id when the other end has ended.
    ///
    /// # Errors
    /// `ConnectionRefused` if the slot has no owner, `PermissionDenied` naming the user if another
    /// user holds the slot's name; otherwise the error of the kernel.
    pub fn send_handshake(
        &self,
        slot: Slot,
        message: &HandshakeMessage,
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<ConnectionId> {
        let message = message.emit();
        for _ in 1..TRIES {
            match self.tell(slot, &[&message], fds) {
                Err(Untold::Full) => std::thread::sleep(Duration::from_micros(200)),
                Err(Untold::NoOwner) => {
                    // A process may hold the name and not listen.
                    let other = self.other_holder(&slot_name(self.uid(), slot));
                    return Err(other.map_or(Untold::NoOwner, Untold::OtherUser).into());
                }
                result => return Ok(result?),
            }
        }
        Ok(self.tell(slot, &[&message], fds)?)
    }

    /// Whether the process now listens at the slot's name, as the kernel says. `pid` is the process
    /// id in the PID namespace of this process; 0 stands for all processes of other PID namespaces.
    pub fn is_held_by(&self, slot: Slot, pid: i32) -> bool {
        let held = self
            .prove_owner(&slot_name(self.uid(), slot))
            .and_then(|fd| owner::prove(&fd, self.uid()).map_err(Untold::Other));
        matches!(held, Ok(Proof::Own(holder)) if holder == pid)
    }

    /// The handshake messages received since the last call. Call [`Local::ended`] first, because a
    /// new process may have taken the slot of an ended one.
    pub fn handshakes(&self) -> Vec<ReceivedHandshake> {
        if !self.has_handshakes.load(Relaxed) {
            return Vec::new();
        }
        let mut kept = self.handshakes.lock();
        self.has_handshakes.store(false, Relaxed);
        std::mem::take(&mut *kept)
    }

    /// The outgoing connections that have ended since the last call. Another process may own the
    /// slot by now, and may have got a handshake message already.
    pub fn ended(&self) -> Vec<ConnectionId> {
        if !self.has_handshakes.load(Relaxed) {
            return Vec::new();
        }
        std::mem::take(&mut *self.ended.lock())
    }

    pub(crate) fn keep_ended(&self, connection: ConnectionId) {
        self.ended.lock().push(connection);
        self.has_handshakes.store(true, Relaxed);
    }

    pub(crate) fn keep_handshake(&self, handshake: ReceivedHandshake) {
        let mut kept = self.handshakes.lock();
        if kept.len() < KEPT && handshake.fds.len() <= MOST_FDS {
            kept.push(handshake);
            self.has_handshakes.store(true, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::OwnedFd;

    /// TRU-3: handshake messages that are never taken cost a bounded number of descriptors.
    #[test]
    fn tru_3_few_handshake_messages_are_kept() {
        let local = Local::new(0).unwrap();
        let given_fds = |count| -> Vec<OwnedFd> {
            (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect()
        };
        let message =
            || HandshakeMessage { nonce: 1, wants_answer: false, mtu: 4096, slots: vec![7] };
        for count in (0..300).map(|n| if n % 2 == 0 { 4 } else { 28 }) {
            let transit = adverb_os::Transit::begin();
            local.keep_handshake(ReceivedHandshake {
                message: message(),
                pid: 1,
                fds: given_fds(count),
                transit,
            });
        }
        let kept = local.handshakes();
        assert_eq!(kept.len(), KEPT);
        assert!(kept.iter().map(|handshake| handshake.fds.len()).sum::<usize>() <= 64);
    }
}
