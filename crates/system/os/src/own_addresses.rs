//! The machine's own addresses.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use adverb_sync::{Mutex, MutexGuard};

use crate::owner::{self, Ranges};

/// How long the list of the machine's own addresses is valid.
const FRESH: Duration = Duration::from_secs(1);

/// The kernel's last answer.
#[derive(Default)]
struct Known {
    at: Option<Instant>,
    own: Ranges,
    /// IPv6 addresses with duplicate address detection under way.
    tentative: Vec<IpAddr>,
}

/// The machine's own addresses.
#[derive(Default)]
pub struct OwnAddresses {
    known: Mutex<Known>,
    /// Changes with the list, and with each call of `renew`.
    version: AtomicU64,
}

impl OwnAddresses {
    /// Whether the address is the machine's own. The answer may be one second old.
    pub fn contains(&self, ip: IpAddr) -> bool {
        if ip.is_loopback() {
            return true;
        }
        owner::within(&self.fresh().own, ip)
    }

    /// Whether the address is certainly not the machine's own. The answer may be one second old.
    pub fn excludes(&self, ip: IpAddr) -> bool {
        if ip.is_loopback() {
            return false;
        }
        let known = self.fresh();
        // Without an answer of the kernel, nothing is certain. Every machine has own addresses.
        !known.own.is_empty() && !owner::within(&known.own, ip)
    }

    /// Whether duplicate address detection is under way for this address. The answer may be one
    /// second old.
    pub fn is_tentative(&self, ip: IpAddr) -> bool {
        ip.is_ipv6() && self.fresh().tentative.contains(&ip)
    }

    /// A number that changes with the list, and with [`OwnAddresses::renew`].
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Relaxed)
    }

    /// Changes the version, to invalidate conclusions drawn at the old version.
    pub fn renew(&self) {
        self.version.fetch_add(1, Relaxed);
    }

    fn fresh(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock();
        if known.at.is_none_or(|at| at.elapsed() > FRESH) {
            match owner::local_ranges() {
                Ok((own, tentative)) => {
                    if own != known.own {
                        self.renew();
                    }
                    (known.own, known.tentative) = (own, tentative);
                }
                // Without an answer the old list stays. The addresses of the sockets are known in
                // any case.
                Err(error) => {
                    log::debug!("the kernel does not say which addresses this machine has: {error}")
                }
            }
            known.at = Some(Instant::now());
        }
        known
    }

    /// The addresses have changed: the next call asks the kernel again.
    pub fn changed(&self) {
        self.known.lock().at = None;
    }
}
