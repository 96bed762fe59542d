//! The machine's own addresses, and what a source address says of a packet.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use adverb_sync::{Mutex, MutexGuard};

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

/// What the kernel said last.
#[derive(Default)]
struct Known {
    at: Option<Instant>,
    own: Ranges,
    /// IPv6 addresses for which duplicate address detection is under way.
    tentative: Vec<IpAddr>,
}

/// The machine's own addresses.
#[derive(Default)]
pub(crate) struct OwnAddresses {
    known: Mutex<Known>,
    /// Changes with the list, and with the sockets.
    pub(crate) version: AtomicU64,
}

impl OwnAddresses {
    /// Is it one of them? The answer may be a second old.
    pub(crate) fn contains(&self, ip: IpAddr) -> bool {
        if ip.is_loopback() {
            return true;
        }
        owner::within(&self.fresh().own, ip)
    }

    /// Is duplicate address detection under way for this address? The answer may be a second old.
    pub(crate) fn is_tentative(&self, ip: IpAddr) -> bool {
        ip.is_ipv6() && self.fresh().tentative.contains(&ip)
    }

    fn fresh(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock();
        if known.at.is_none_or(|at| at.elapsed() > FRESH) {
            match owner::local_ranges() {
                Ok((own, tentative)) => {
                    if own != known.own {
                        self.version.fetch_add(1, Relaxed);
                    }
                    (known.own, known.tentative) = (own, tentative);
                }
                // Without an answer what was known stays; the addresses of the sockets are known
                // in any case.
                Err(error) => {
                    log::debug!("the kernel does not say which addresses this machine has: {error}")
                }
            }
            known.at = Some(Instant::now());
        }
        known
    }

    /// They have changed: the next question is asked anew.
    pub(crate) fn changed(&self) {
        self.known.lock().at = None;
    }
}
