//! Counters, relaxed atomics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of this process's counters of its traffic with other processes, since the
        /// process began.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LocalStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Errors reported by the network to a socket: ICMP messages, no route, and interfaces
            /// that went down.
            pub network_errors: u64,
            /// Failed socket operations: the log names each kind once.
            pub socket_errors: u64,
        }

        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> LocalStats {
                LocalStats { $($name: self.$name.load(Relaxed),)* ..LocalStats::default() }
            }
        }

        impl LocalStats {
            /// Names and values, for a table or a metrics page.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![
                    $((stringify!($name), self.$name),)*
                    ("network_errors", self.network_errors),
                    ("socket_errors", self.socket_errors),
                ]
            }
        }
    };
}

counters! {
    /// Packets forwarded to another process.
    forwarded_out,
    /// Packets dropped because the owning process did not empty its socket for other processes.
    forwarded_drop_full,
    /// Packets given to another process on this host without the network.
    delivered,
    /// Packets dropped because the receiving process took nothing for a long time.
    deliver_drop_not_receiving,
    /// Frames of raw packet queue pairs taken from other processes.
    frames_in,
    /// Frames dropped because the interface stayed full for the bounded wait.
    frame_drop_full,
    /// Frames dropped because they were longer than the buffer.
    frame_drop_oversize,
    /// Frames dropped because too many arrived before a thread took them.
    frame_drop_pending,
    /// Connections of other users, ended before anything was read.
    local_drop_other_user,
    /// Connections to names held by other users, over which nothing was sent.
    local_refused_other_user,
    /// Messages of other processes, or packets of them, dropped because they were malformed, too
    /// long, or for another process's slot.
    local_drop_malformed,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
