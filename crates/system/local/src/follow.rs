//! A process that changes its user while it has slots.
//!
//! The kernel notes a process's effective user at each socket when the process listens or connects,
//! and the note stays. So the slots of a process prove the user that claimed them. A process that
//! has changed its user since connects as the new user, and other processes of the old user send it
//! away (TRU-1). Two ways lead on:
//!
//! * A process that has given its old user up for good (`setuid` of root), before any queue pair,
//!   address or service stands, claims its slot anew: [`Local::follow_user`]. Daemons open a
//!   device as root, drop their privileges and work.
//! * In all other cases a call that needs another process of this host fails at once, and names
//!   both users ([`UserChanged`]). No thread keeps the old user, as the program gave it up.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use adverb_os::User;
use adverb_os::owner;
use adverb_os::sys;

use crate::error::{Changed, LocalError, UserChanged};
use crate::local::Local;
use crate::slot::{Slot, SlotClaim};

/// Processes that were sent away whose users are remembered, the last ones.
const REMEMBERED: usize = 64;

impl Local {
    /// The user whose processes this one talks to on this host.
    pub fn uid(&self) -> u32 {
        self.user.uid.load(Acquire)
    }

    pub(crate) fn tells_users_apart(&self) -> bool {
        self.user.told_apart.load(Acquire)
    }

    /// Does this thread run as another user than the one that opened the device? The log says so
    /// once for each user.
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

    /// What this process would bind now other processes would not take for this one's.
    pub(crate) fn check_user(&self) -> Result<(), LocalError> {
        self.changed_user().map_or(Ok(()), |changed| Err(LocalError::UserChanged(changed)))
    }

    /// The change of the process that owns a slot, if this process has connected to it and it has
    /// tried to connect itself.
    pub fn changed_owner(&self, slot: Slot) -> Option<UserChanged> {
        let pid = self.outgoing.connections.read().get(&slot).map(|c| c.pid).filter(|pid| *pid != 0)?;
        let sent_away = self.user.sent_away.lock();
        let (_, now) = *sent_away.iter().find(|(of, _)| *of == pid)?;
        Some(UserChanged { process: Changed::Peer(pid), opened: self.uid(), now })
    }

    /// Remembers a process that was sent away; 0 is a process of another PID namespace.
    pub(crate) fn remember_sent_away(&self, pid: i32, uid: u32) {
        let mut sent_away = self.user.sent_away.lock();
        sent_away.retain(|(of, _)| *of != pid);
        if pid != 0 {
            sent_away.truncate(REMEMBERED - 1);
            sent_away.push_front((pid, uid));
        }
    }

    /// A process of the own user has connected.
    pub(crate) fn forget_sent_away(&self, pid: i32) {
        self.user.sent_away.lock().retain(|(of, _)| *of != pid);
    }

    /// Takes on the user that this process has changed to for good, if nothing was made under the
    /// old one. The caller has given no queue pair number out, and opened no address.
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
        self.own_slot(claim.slot());
        log::debug!("the process has become {}: its slot is {}", User(now), claim.slot());
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
        assert!(here.starts_with("this process opened") && peer.starts_with("process 7 of this host opened"));
    }

    #[test]
    fn few_that_were_sent_away_are_remembered() {
        let local = Local::new(0).unwrap();
        (0..1000).for_each(|n| local.remember_sent_away(n % 500, 77));
        assert_eq!(local.user.sent_away.lock().len(), REMEMBERED);
        assert_eq!(local.changed_user(), None);
    }
}
