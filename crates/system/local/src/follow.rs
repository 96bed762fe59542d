//! A process that changes its user after claiming slots.
//!
//! The kernel records a process's effective user at each socket when the process listens or
//! connects, and never updates the record. So the slots of a process prove the user at the time of
//! the claim. After a change of user the process connects as the new user, and other processes of
//! the old user refuse the connection (TRU-1). There are two cases:
//!
//! * The process has given up the old user for good (`setuid` of root), and has no queue pair,
//!   address or service yet. Then the process claims a slot anew: [`Local::follow_user`]. Daemons
//!   open a device as root, drop their privileges, and then work.
//! * In all other cases a call that needs another process of this host fails at once with an error
//!   naming both users ([`UserChanged`]). No thread keeps the old user, because the program has
//!   given this user up.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use adverb_os::User;
use adverb_os::owner;
use adverb_os::sys;

use crate::error::{Changed, LocalError, UserChanged};
use crate::local::Local;
use crate::slot::{Slot, SlotClaim};

/// The number of refused processes remembered with their users; the oldest are dropped.
const REMEMBERED: usize = 64;

impl Local {
    /// The user of this process's peers on this host.
    pub fn uid(&self) -> u32 {
        self.user.uid.load(Acquire)
    }

    pub(crate) fn tells_users_apart(&self) -> bool {
        self.user.told_apart.load(Acquire)
    }

    /// Whether this thread runs as another user than the user that opened the device. The log names
    /// each new user once.
    pub fn changed_user(&self) -> Option<UserChanged> {
        let (opened, now) = (self.uid(), sys::effective_uid());
        let changed = UserChanged { process: Changed::Here, opened, now };
        if now == opened {
            return None;
        }
        if self.user.named.swap(now, AcqRel) != now {
            log::error!("{changed}");
        }
        Some(changed)
    }

    /// Fails after a change of user: other processes would not accept the names bound from now on
    /// as this process's.
    pub(crate) fn check_user(&self) -> Result<(), LocalError> {
        self.changed_user().map_or(Ok(()), |changed| Err(LocalError::UserChanged(changed)))
    }

    /// The change of user of a slot's owner. Known if this process has connected to the owner, and
    /// the owner has tried to connect as another user.
    pub fn changed_owner(&self, slot: Slot) -> Option<UserChanged> {
        let pid =
            self.outgoing.connections.read().get(&slot).map(|c| c.pid).filter(|pid| *pid != 0)?;
        let sent_away = self.user.sent_away.lock();
        let (_, now) = *sent_away.iter().find(|(of, _)| *of == pid)?;
        Some(UserChanged { process: Changed::Peer(pid), opened: self.uid(), now })
    }

    /// Remembers a refused process. 0 is a process of another PID namespace.
    pub(crate) fn remember_sent_away(&self, pid: i32, uid: u32) {
        let mut sent_away = self.user.sent_away.lock();
        sent_away.retain(|(of, _)| *of != pid);
        if pid != 0 {
            sent_away.truncate(REMEMBERED - 1);
            sent_away.push_front((pid, uid));
        }
    }

    /// Forgets a process, because the process has connected as the own user.
    pub(crate) fn forget_sent_away(&self, pid: i32) {
        self.user.sent_away.lock().retain(|(of, _)| *of != pid);
    }

    /// Adopts the new user after a change for good, if nothing was created as the old user. The
    /// caller guarantees that no queue pair number was assigned and no address opened.
    ///
    /// # Errors
    /// As [`SlotClaim::claim`].
    pub fn follow_user(&self) -> Result<(), LocalError> {
        let Some(now) = sys::only_uid().filter(|now| *now != self.uid()) else { return Ok(()) };
        let mut claims = self.claims.write();
        let is_used = self.services.next.load(Relaxed) > 0
            || self.frames.next.load(Relaxed) > 0
            || !self.outgoing.connections.read().is_empty();
        if is_used {
            return Ok(());
        }
        let claim = Arc::new(SlotClaim::claim_in(&self.fds, self.seed)?);
        self.incoming
            .add_listener(claim.slot(), &claim.fd)
            .map_err(|error| LocalError::from_io("watch a slot's connections", error))?;
        for old in claims.iter() {
            sys::unwatch(self.incoming.any.own(), old.fd.own());
            self.disown(old.slot());
        }
        let slot = claim.slot();
        self.own_slot(slot);
        log::debug!("the user of the process is now {}, and the slot is {slot}", User(now));
        self.user.told_apart.store(owner::users_can_be_told_apart(), Release);
        self.user.uid.store(now, Release);
        self.user.named.store(now, Release);
        *claims = Arc::new(vec![claim]);
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_changed_user_is_named_with_the_old_one() {
        let here = UserChanged { process: Changed::Here, opened: 0, now: 2001 }.to_string();
        let peer = UserChanged { process: Changed::Peer(7), opened: 0, now: 2001 }.to_string();
        for text in [&here, &peer] {
            assert!(text.contains("user 0 (`id -un 0`)") && text.contains("user 2001"), "{text}");
            assert!(text.contains("open the device after"), "{text}");
        }
        assert!(
            here.starts_with("this process opened")
                && peer.starts_with("process 7 of this host opened")
        );
    }

    #[test]
    fn few_that_were_sent_away_are_remembered() {
        let local = Local::new(0).unwrap();
        (0..1000).for_each(|n| local.remember_sent_away(n % 500, 77));
        assert_eq!(local.user.sent_away.lock().len(), REMEMBERED);
        assert_eq!(local.changed_user(), None);
    }
}
