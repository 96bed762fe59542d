//! The user of a process, as recorded by the kernel at the process's sockets.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32};

use adverb_sync::Mutex;

use adverb_os::owner;
use adverb_os::sys;

/// The user of a process.
pub(crate) struct LocalUser {
    pub(crate) uid: AtomicU32,
    /// The kernel tells this process its own user apart from all other users.
    pub(crate) told_apart: AtomicBool,
    /// The effective user named last in the log; at first the process's own.
    pub(crate) named: AtomicU32,
    /// Refused processes of other users: process id and user.
    pub(crate) sent_away: Mutex<VecDeque<(i32, u32)>>,
}

impl LocalUser {
    /// The effective user of this thread.
    pub(crate) fn current() -> Self {
        let uid = sys::effective_uid();
        let told_apart = owner::users_can_be_told_apart();
        if !told_apart {
            log::warn!(
                "this process runs as the overflow user of the user namespace, so processes of \
                 this user and of other users look alike: packets between processes of this host \
                 go over the network only; run the program as another user"
            );
        }
        LocalUser {
            uid: AtomicU32::new(uid),
            told_apart: AtomicBool::new(told_apart),
            named: AtomicU32::new(uid),
            sent_away: Mutex::default(),
        }
    }

    /// A user other than this process's.
    pub(crate) fn stranger(uid: u32) -> Self {
        LocalUser { uid: AtomicU32::new(uid), named: AtomicU32::new(uid), ..Self::current() }
    }
}
