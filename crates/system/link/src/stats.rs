//! Counters, relaxed atomics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use adverb_local::LocalStats;

use crate::faults::FaultStats;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A snapshot of a link's counters since its creation.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct LinkStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Datagrams dropped by the kernel because a receive buffer was full (live sockets
            /// only).
            pub rx_kernel_drops: u64,
            /// The counters of faults on request.
            pub faults: FaultStats,
            /// The counters for other processes of this host, and for failed socket operations.
            pub local: LocalStats,
        }

        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
            pub(crate) faults: FaultStats<AtomicU64>,
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> LinkStats {
                LinkStats {
                    $($name: self.$name.load(Relaxed),)*
                    faults: self.faults.snapshot(),
                    ..LinkStats::default()
                }
            }
        }

        impl LinkStats {
            /// Names and values, for a table or a metrics page.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                let mut named = vec![$((stringify!($name), self.$name),)* ("rx_kernel_drops", self.rx_kernel_drops)];
                named.extend(self.faults.named());
                named.extend(self.local.named());
                named
            }
        }
    };
}

counters! {
    /// Packets sent.
    tx_packets,
    /// Bytes sent, BTH through ICRC.
    tx_bytes,
    /// GSO runs of at least two packets sent.
    tx_runs,
    /// Send system calls.
    tx_syscalls,
    /// Packets dropped because the socket stayed full for the bounded wait.
    tx_drop_full,
    /// Packets dropped because they exceed the interface's MTU or the largest datagram.
    tx_drop_too_big,
    /// Packets dropped because the kernel knows no way to the destination.
    tx_drop_unreachable,
    /// Packets dropped for other reasons (address removed, filtered, out of memory).
    tx_drop_other,
    /// Sending sockets for further source ports that could not be opened. Their queue pairs send
    /// from the link's own port.
    tx_no_source_port,
    /// Packets given to the sink.
    rx_packets,
    /// Bytes of the packets given to the sink, BTH through pad.
    rx_bytes,
    /// Datagrams received, each of one or more packets joined by GRO.
    rx_datagrams,
    /// Receive system calls on UDP sockets.
    rx_syscalls,
    /// Packets dropped: ICRC wrong.
    rx_drop_icrc,
    /// Packets dropped: shorter than a BTH and an ICRC, or cut off.
    rx_drop_runt,
    /// Packets dropped: longer than any packet.
    rx_drop_oversize,
    /// Packets dropped: sent from an address of this machine, but not from the own user's port
    /// there.
    rx_drop_local_port,
    /// Packets dropped: only one of the IP destination and the BTH's destination is multicast.
    rx_drop_not_multicast,
    /// Packets dropped: no live process owns the QPN's slot.
    rx_drop_no_owner,
    /// Packets for the steering tests' QPN dropped: no steering test of a living process of this
    /// user and host.
    rx_drop_steering_test,
    /// Packets dropped: too many arrived during the setup of a link without a running receiver.
    rx_drop_pending,
    /// Packets received from other processes.
    forwarded_in,
    /// Steering tests answered.
    steering_tests_answered,
    /// Measurements of the steering table.
    resteers,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}
