//! How much memory may still be had: of the machine, and of the control groups that this process is
//! in.
//!
//! Pages of a file in memory come when they are touched, and what the machine cannot hold then ends
//! some process by the OOM killer. So whoever makes such memory asks here first (MEM-5).
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that can be had now, as far as the kernel says.
pub(crate) fn available() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine(&text, is_strict()));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().filter_map(|line| tightest(line, Path::new("/sys/fs/cgroup"))).min();
    machine.unwrap_or(u64::MAX).min(group.unwrap_or(u64::MAX))
}

/// Does the kernel set memory aside for each private mapping, and promise no more than it has
/// (`vm.overcommit_memory` = 2)? For sparse files it does not, and who touches a page that cannot
/// be had gets a signal.
pub(crate) fn is_strict() -> bool {
    fs::read_to_string("/proc/sys/vm/overcommit_memory").is_ok_and(|text| text.trim() == "2")
}

/// `MemAvailable` and free swap, in bytes; where memory is set aside no more than is left of that.
fn machine(text: &str, strict: bool) -> Option<u64> {
    let field = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let there = field("MemAvailable:")?.saturating_add(field("SwapFree:").unwrap_or(0));
    let promised = field("CommitLimit:").zip(field("Committed_AS:")).filter(|_| strict);
    Some(promised.map_or(there, |(limit, set_aside)| there.min(limit.saturating_sub(set_aside))))
}

/// What a line of `/proc/self/cgroup` leaves: the least of its group and of all above it.
fn tightest(line: &str, root: &Path) -> Option<u64> {
    let mut fields = line.splitn(3, ':');
    let (controllers, path) = (fields.nth(1)?, fields.next()?);
    let (root, limit, usage): (PathBuf, _, _) = if controllers.is_empty() {
        let unified = root.join("unified");
        (if unified.is_dir() { unified } else { root.to_owned() }, "memory.max", "memory.current")
    } else if controllers.split(',').any(|name| name == "memory") {
        (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes")
    } else {
        return None;
    };
    let inside = root.join(path.trim_start_matches('/'));
    // In a container the path may be that of the host, while the group itself is the root.
    let own = if inside.is_dir() { inside } else { root.clone() };
    own.ancestors().take_while(|dir| dir.starts_with(&root)).filter_map(|dir| left(dir, limit, usage)).min()
}

/// What a group has left: its limit, less what it uses and cannot give back.
fn left(group: &Path, limit: &str, usage: &str) -> Option<u64> {
    let number = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    // "max" is no number: no limit.
    let limit = number(limit)?;
    let used = number(usage)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let reclaimable = stat
        .lines()
        .find_map(|line| line.strip_prefix("total_inactive_file ").or(line.strip_prefix("inactive_file ")))
        .and_then(|n| n.trim().parse::<u64>().ok());
    Some(limit.saturating_sub(used.saturating_sub(reclaimable.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let put = |at: &Path, name: &str, text: &str| fs::write(at.join(name), text).unwrap();
        put(&group, "memory.limit_in_bytes", "9223372036854771712\n");
        put(&group, "memory.usage_in_bytes", "500\n");
        let outer = dir.join("memory/outer");
        put(&outer, "memory.limit_in_bytes", "1000\n");
        put(&outer, "memory.usage_in_bytes", "900\n");
        put(&outer, "memory.stat", "cache 3\ninactive_file 7\ntotal_inactive_file 50\n");
        assert_eq!(tightest("4:memory:/outer/inner", &dir), Some(107));
        put(&outer, "memory.stat", "total_inactive_file 50\n");
        assert_eq!(tightest("4:memory:/outer/inner", &dir), Some(150));
        put(&outer, "memory.limit_in_bytes", "800\n");
        assert_eq!(tightest("4:memory:/outer/inner", &dir), Some(0));
        assert_eq!(tightest("3:cpuset:/outer", &dir), None);
        fs::remove_dir_all(&dir).unwrap();
    }
}
