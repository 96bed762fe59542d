//! The memory still available: of the machine, and of this process's control groups.
//!
//! The kernel allocates pages of a file in memory at the first access. If the machine cannot hold
//! them then, the OOM killer ends some process. So code that creates such memory asks here first
//! (MEM-5).
//!
//! The check before a fork also calls this code. A fork may interrupt the allocator (`_Fork` in a
//! signal handler), so no code in this file allocates memory.
use crate::text::{self, Path, number};
use std::ffi::CStr;

/// The directory of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Bytes available now, as far as the kernel says.
pub(crate) fn available() -> u64 {
    let machine = Machine::of(c"/proc/meminfo").left(is_strict());
    let mut group = u64::MAX;
    let _ = text::lines(c"/proc/self/cgroup", |line| {
        let left = std::str::from_utf8(line).ok().and_then(|line| tightest(line, GROUPS));
        group = group.min(left.unwrap_or(u64::MAX));
        true
    });
    machine.unwrap_or(u64::MAX).min(group)
}

/// Whether the kernel reserves memory for each private mapping, and promises no more than it has
/// (`vm.overcommit_memory` = 2). The kernel reserves nothing for sparse files, and a thread
/// touching a page that cannot be allocated gets a signal.
pub(crate) fn is_strict() -> bool {
    text::first_line(c"/proc/sys/vm/overcommit_memory", number) == Some(2)
}

/// Values of `/proc/meminfo`, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Machine {
    available: Option<u64>,
    swap: Option<u64>,
    /// The commit limit, and the memory committed.
    limit: Option<u64>,
    promised: Option<u64>,
}

impl Machine {
    fn of(path: &CStr) -> Machine {
        let mut found = Machine::default();
        let _ = text::lines(path, |line| {
            found.note(line);
            true
        });
        found
    }

    fn note(&mut self, line: &[u8]) {
        let Some((name, value)) =
            std::str::from_utf8(line).ok().and_then(|line| line.split_once(':'))
        else {
            return;
        };
        let place = match name {
            "MemAvailable" => &mut self.available,
            "SwapFree" => &mut self.swap,
            "CommitLimit" => &mut self.limit,
            "Committed_AS" => &mut self.promised,
            _ => return,
        };
        *place =
            value.split_whitespace().next().and_then(|n| n.parse::<u64>().ok()?.checked_mul(1024));
    }

    /// `MemAvailable` plus free swap. In `strict` mode at most the rest of the commit limit.
    fn left(self, strict: bool) -> Option<u64> {
        let there = self.available?.saturating_add(self.swap.unwrap_or(0));
        let promised = self.limit.zip(self.promised).filter(|_| strict);
        Some(promised.map_or(there, |(limit, used)| there.min(limit.saturating_sub(used))))
    }
}

/// The memory left by a line of `/proc/self/cgroup`: the least of its group and all groups above.
/// `groups` is the directory of control groups.
fn tightest(line: &str, groups: &str) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (controllers, path) = (fields.nth(1)?, fields.next()?);
    let (root, limit, usage) = if controllers.is_empty() {
        let unified = Path::of(format_args!("{groups}/unified"))?;
        let root = if exists(&unified) { unified } else { Path::of(format_args!("{groups}"))? };
        (root, "memory.max", "memory.current")
    } else if controllers.split(',').any(|name| name == "memory") {
        let root = Path::of(format_args!("{groups}/memory"))?;
        (root, "memory.limit_in_bytes", "memory.usage_in_bytes")
    } else {
        return None;
    };
    let root = root.as_str();
    let inside = Path::of(format_args!("{root}/{}", path.trim_start_matches('/')));
    // In a container the path may be the host's, while the group itself is the root.
    let inside = inside.filter(exists);
    let mut group = inside.map_or_else(|| Path::of(format_args!("{root}")), Some)?;
    let mut least = None::<u64>;
    loop {
        let left = left(&group, limit, usage);
        least = least.into_iter().chain(left).min();
        if !group.ascend(root.len()) {
            return least;
        }
    }
}

fn exists(path: &Path) -> bool {
    crate::sys::open(path.as_c_str()).map(crate::sys::close).is_ok()
}

/// The memory left in a group: its limit minus its usage that cannot be reclaimed.
fn left(group: &Path, limit: &str, usage: &str) -> Option<u64> {
    let at = |name: &str| Path::of(format_args!("{}/{name}", group.as_str()));
    let of = |name: &str| text::first_line(at(name)?.as_c_str(), number);
    // "max" is no number and means no limit.
    let limit = of(limit)?;
    let used = of(usage)?;
    let mut reclaimable = None;
    let _ = text::lines(at("memory.stat")?.as_c_str(), |line| {
        let names: [&[u8]; 2] = [b"total_inactive_file ", b"inactive_file "];
        reclaimable = names.iter().find_map(|name| line.strip_prefix(*name)).and_then(number);
        reclaimable.is_none()
    });
    Some(limit.saturating_sub(used.saturating_sub(reclaimable.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn machine(text: &str, strict: bool) -> Option<u64> {
        let mut found = Machine::default();
        text.lines().for_each(|line| found.note(line.as_bytes()));
        found.left(strict)
    }

    #[test]
    fn the_machine_says_what_is_left() {
        let text = "MemTotal:  100 kB\nMemAvailable:   60 kB\nSwapFree:   4 kB\n";
        assert_eq!(machine(text, true), Some(64 << 10));
        let text = format!("{text}CommitLimit: 50 kB\nCommitted_AS: 20 kB\n");
        assert_eq!((machine(&text, false), machine(&text, true)), (Some(64 << 10), Some(30 << 10)));
        assert_eq!(machine("MemTotal: 1 kB\n", false), None);
        assert!(available() > 1 << 20, "this machine has a megabyte left");
    }

    /// MEM-5: the tightest group on the way up decides.
    #[test]
    fn mem_5_the_tightest_group_decides() {
        let dir = std::env::temp_dir().join(format!("adverb-room-{}", std::process::id()));
        let group = dir.join("memory/outer/inner");
        fs::create_dir_all(&group).unwrap();
        let put =
            |at: &std::path::Path, name: &str, text: &str| fs::write(at.join(name), text).unwrap();
        put(&group, "memory.limit_in_bytes", "9223372036854771712\n");
        put(&group, "memory.usage_in_bytes", "500\n");
        let outer = dir.join("memory/outer");
        put(&outer, "memory.limit_in_bytes", "1000\n");
        put(&outer, "memory.usage_in_bytes", "900\n");
        put(&outer, "memory.stat", "cache 3\ninactive_file 7\ntotal_inactive_file 50\n");
        assert_eq!(tightest("4:memory:/outer/inner", dir.to_str().unwrap()), Some(107));
        put(&outer, "memory.stat", "total_inactive_file 50\n");
        assert_eq!(tightest("4:memory:/outer/inner", dir.to_str().unwrap()), Some(150));
        put(&outer, "memory.limit_in_bytes", "800\n");
        assert_eq!(tightest("4:memory:/outer/inner", dir.to_str().unwrap()), Some(0));
        assert_eq!(tightest("3:cpuset:/outer", dir.to_str().unwrap()), None);
        fs::remove_dir_all(&dir).unwrap();
    }
}
