//! The user of a process, as the kernel notes it at the process's sockets.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32};

use adverb_sync::Mutex;

use adverb_os::owner;
use adverb_os::sys;

/// The user of a process.
pub(crate) struct LocalUser {
    pub(crate) uid: AtomicU32,
    /// The kernel tells this process its own user from all others.
    pub(crate) told_apart: AtomicBool,
    /// The effective user that the log has named last; the process's own before.
    pub(crate) named: AtomicU32,
    /// Processes of other users that were sent away: number and user.
    pub(crate) sent_away: Mutex<VecDeque<(i32, u32)>>,
}

impl LocalUser {
    /// The effective user of this thread.
    pub(crate) fn current() -> Self {
        let uid = sys::effective_uid();
        let told_apart = owner::users_can_be_told_apart();
        if !told_apart {
            log::warn!(
                "this process runs as the user that stands for all unknown ones in its user namespace, so it cannot tell its own \
                 processes from those of others: packets between processes of this host go over the network only; run it as another user"
            );
        }
        LocalUser {
            uid: AtomicU32::new(uid),
            told_apart: AtomicBool::new(told_apart),
            named: AtomicU32::new(uid),
            sent_away: Mutex::default(),
        }
    }

    /// A user that is not this process's.
    pub(crate) fn stranger(uid: u32) -> Self {
        LocalUser { uid: AtomicU32::new(uid), named: AtomicU32::new(uid), ..Self::current() }
    }
}
