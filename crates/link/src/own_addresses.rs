//! The machine's own addresses, and what a source address says of a packet.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use adverb_sync::Mutex;

use crate::owner::{self, Ranges};

/// How long the list of the machine's own addresses is believed.
const FRESH: Duration = Duration::from_secs(1);

/// What a source address says of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// From another machine, or from the own user's port of this one.
    Good,
    /// From the port at an address of this machine at which this process has no socket: whose it is
    /// it cannot say. A process that has one there can.
    Unproven,
    /// From this machine, and not from the port.
    Forged,
}

/// The origin of packets from the source seen last, and the version of the tables that said so.
#[derive(Debug, Default)]
pub(crate) struct LastOrigin(pub(crate) Option<(SocketAddr, u64, Origin)>);

/// The machine's own addresses.
#[derive(Default)]
pub(crate) struct OwnAddresses {
    known: Mutex<(Option<Instant>, Ranges)>,
    /// Changes with the list, and with the sockets.
    pub(crate) version: AtomicU64,
}

impl OwnAddresses {
    /// Is it one of them? The answer may be a second old.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        if ip.is_loopback() {
            return true;
        }
        let mut known = self.known.lock();
        if known.0.is_none_or(|at| at.elapsed() > FRESH) {
            // Without an answer what was known stays; the addresses of the sockets are known in any
            // case.
            let ranges = owner::local_ranges().unwrap_or_else(|error| {
                log::debug!("the kernel does not say which addresses this machine has: {error}");
                std::mem::take(&mut known.1)
            });
            if ranges != known.1 {
                self.version.fetch_add(1, Relaxed);
            }
            *known = (Some(Instant::now()), ranges);
        }
        owner::within(&known.1, ip)
    }

    /// They have changed: the next question is asked anew.
    pub(crate) fn changed(&self) {
        self.known.lock().0 = None;
    }
}
