//! Possible remains of dead processes: in the system, and in the surviving process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use adverb_bench::Result;
use adverb_bench::procfs::{Memory, descriptors};

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))
}

/// Sockets with names of Adverb, by inode number. Another process may use a name again, but an
/// inode number belongs to one socket.
///
/// # Errors
/// `/proc` cannot be read.
pub fn sockets() -> Result<BTreeMap<u64, String>> {
    let text = read("/proc/net/unix")?;
    let of_line = |line: &str| {
        let mut words = line.split_whitespace().skip(6);
        let (inode, name) = (words.next()?.parse().ok()?, words.next()?.strip_prefix("@adverb-")?);
        Some((inode, name.to_string()))
    };
    Ok(text.lines().filter_map(of_line).collect())
}

/// The socket of the process with this queue pair.
///
/// # Errors
/// `/proc` cannot be read.
pub fn socket_of(qpn: u32) -> Result<Option<u64>> {
    let name = format!("{}-{}", nix::unistd::geteuid(), qpn >> 14);
    Ok(sockets()?.into_iter().find(|(_, n)| *n == name).map(|(inode, _)| inode))
}

/// Waits until no socket of a dead process is left. The kernel may close a socket later than its
/// process ends.
///
/// # Errors
/// A socket that stays.
pub fn gone(dead: &[u64]) -> Result<()> {
    let mut looks = LOOKS[1];
    loop {
        let left = sockets()?;
        let Some(name) = dead.iter().find_map(|inode| left.get(inode)) else { return Ok(()) };
        if looks == 0 {
            return Err(format!("the socket {name:?} of a dead process is left"));
        }
        looks -= 1;
        std::thread::sleep(BETWEEN);
    }
}

/// Files in `/dev/shm` with a name of Adverb.
#[must_use]
pub fn files() -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir("/dev/shm") else { return BTreeSet::new() };
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains("adverb")).collect()
}

/// Resources of this process.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    descriptors: usize,
    mappings: usize,
    address_space: u64,
    pss: u64,
}

/// Permitted growth, for arenas and stacks of the C library.
const MAPPINGS: usize = 24;
const ADDRESS_SPACE: u64 = 256 << 20;
const PSS: u64 = 48 << 20;
/// Number of looks at the resources of this process: for the least of several looks, and until few
/// enough are left.
const LOOKS: [usize; 2] = [20, 600];
/// Pause between two looks.
const BETWEEN: Duration = Duration::from_millis(50);

impl Own {
    /// The present resources.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn now() -> Result<Self> {
        let me = std::process::id();
        let status = read("/proc/self/status")?;
        let size = status.lines().find_map(|l| l.strip_prefix("VmSize:")?.strip_suffix("kB"));
        let size: u64 = size.and_then(|s| s.trim().parse().ok()).ok_or("no VmSize")?;
        Ok(Own {
            descriptors: descriptors(me)?,
            mappings: read("/proc/self/maps")?.lines().count(),
            address_space: size << 10,
            pss: Memory::of(me)?.pss,
        })
    }

    /// The resources after this process has seen the end of the others: the least of several looks,
    /// or the first look with at most `enough` descriptors.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn settled(enough: Option<usize>) -> Result<Self> {
        let mut least = Self::now()?;
        for _ in 0..LOOKS[usize::from(enough.is_some())] {
            match enough {
                Some(enough) if least.descriptors <= enough => break,
                _ => std::thread::sleep(BETWEEN),
            }
            let now = Self::now()?;
            if now.descriptors <= least.descriptors {
                least = now;
            }
        }
        Ok(least)
    }

    /// Number of open descriptors.
    #[must_use]
    pub fn descriptors(&self) -> usize {
        self.descriptors
    }

    /// Checks for growth, except for the C library's share.
    ///
    /// # Errors
    /// The growth.
    pub fn compare(self, before: Self, rounds: usize) -> Result<()> {
        let grown = self.descriptors > before.descriptors
            || self.mappings > before.mappings + MAPPINGS
            || self.address_space > before.address_space + ADDRESS_SPACE
            || self.pss > before.pss + PSS;
        if grown {
            Err(format!("after {rounds} rounds {self:?}, before {before:?}"))
        } else {
            Ok(())
        }
    }
}

impl std::fmt::Display for Own {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Own { descriptors, mappings, address_space, pss } = self;
        let (space, pss) = (address_space >> 20, pss >> 10);
        write!(
            f,
            "{descriptors} descriptors, {mappings} mappings, {space} MiB of addresses, {pss} KiB resident"
        )
    }
}
