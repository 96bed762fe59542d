//! Pages that a NIC locks in memory, and the kernel's limit for locked pages (`ulimit -l`).
use crate::error::Error;
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
/// The number of CAP_IPC_LOCK.
const IPC_LOCK: u32 = 14;

/// Number of registered pages of this process.
static PAGES: AtomicU64 = AtomicU64::new(0);

/// Registered pages, counted until the drop.
#[derive(Debug)]
pub struct Locked {
    pages: u64,
}

impl Locked {
    /// Counts pages, like the kernel at a registration of memory with a NIC.
    ///
    /// # Errors
    /// ENOMEM if the pages exceed `RLIMIT_MEMLOCK` and the process has no CAP_IPC_LOCK.
    pub fn pages(pages: u64) -> Result<Locked, Error> {
        let limit = match getrlimit(Resource::RLIMIT_MEMLOCK) {
            Ok((soft, _)) if soft != RLIM_INFINITY && !may_lock() => soft / PAGE,
            _ => u64::MAX,
        };
        Locked::within(pages, limit)
    }

    pub(super) fn within(pages: u64, limit: u64) -> Result<Locked, Error> {
        let locked = Locked { pages };
        let all = PAGES.fetch_add(pages, Ordering::Relaxed) + pages;
        if all > limit {
            drop(locked);
            let (all, limit) = (all * PAGE / 1024, limit * PAGE / 1024);
            return Err(Error::no_memory(format!(
                "{all} KiB would be registered, and RLIMIT_MEMLOCK (ulimit -l) is {limit} KiB"
            )));
        }
        Ok(locked)
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        PAGES.fetch_sub(self.pages, Ordering::Relaxed);
    }
}

/// Number of pages that a range touches.
pub(crate) fn pages_of(addr: u64, len: u64) -> u64 {
    let last = addr.saturating_add(len).div_ceil(PAGE);
    last.saturating_sub(addr / PAGE)
}

/// Does the process have CAP_IPC_LOCK?
fn may_lock() -> bool {
    static MAY: OnceLock<bool> = OnceLock::new();
    *MAY.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        has_capability(&status, IPC_LOCK)
    })
}

pub(super) fn has_capability(status: &str, number: u32) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> number & 1 == 1)
}
