//! Limits on descriptors, locked memory, memory and the places for files.
use super::finding::{Finding, bytes};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
use nix::sys::statvfs::{FsFlags, statvfs};
use std::fs;
use std::path::{Path, PathBuf};

/// Number of descriptors that a process with some queues and peers needs.
const DESCRIPTORS: u64 = 256;
/// Programs that use verbs seldom lock more memory than this.
const LOCKED: u64 = 64 << 20;
const ROOM: u64 = 1 << 20;
const MEMORY: u64 = 256 << 20;
/// A receive buffer that holds the windows of some peers.
const RECEIVE_BUFFER: u64 = 4 << 20;
/// The size that the device asks for.
const WANTED_BUFFER: u64 = 32 << 20;
/// CAP_NET_ADMIN in `CapEff`.
const NET_ADMIN: u64 = 1 << 12;

pub fn findings() -> Vec<Finding> {
    let descriptors =
        getrlimit(Resource::RLIMIT_NOFILE).map(|(soft, hard)| descriptors(soft, hard));
    let locked = getrlimit(Resource::RLIMIT_MEMLOCK).map(|(soft, _)| locked(soft));
    let some = [descriptors.ok(), locked.ok(), receive_buffer()].into_iter().flatten();
    some.chain([shm(), places(), memory()]).collect()
}

fn descriptors(soft: u64, hard: u64) -> Finding {
    let how = if hard >= DESCRIPTORS {
        ""
    } else {
        ", after the hard limit was raised (root, or the container's options)"
    };
    let remedy = format!(
        "each peer and each channel needs descriptors, and {DESCRIPTORS} are enough for most \
         programs: `ulimit -n 4096`{how}"
    );
    let found = format!("{soft} descriptors a process");
    Finding::ok("descriptors", found).unless(soft >= DESCRIPTORS, remedy)
}

fn locked(soft: u64) -> Finding {
    let found = match soft {
        RLIM_INFINITY => "all memory may be locked".into(),
        soft => format!("{} may be locked", bytes(soft)),
    };
    if soft >= LOCKED {
        return Finding::ok("memlock", found);
    }
    // The device pins no memory, but programs check the limit.
    let remedy = "Adverb locks no memory, but some programs check this limit before they register \
                  memory: `ulimit -l unlimited`";
    Finding::ok("memlock", format!("{found}; {remedy}"))
}

/// The kernel's limit on receive buffers. A privileged process exceeds it.
fn receive_buffer() -> Option<Finding> {
    let limit = fs::read_to_string("/proc/sys/net/core/rmem_max").ok()?.trim().parse().ok()?;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities =
        effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    Some(judged_buffer(limit, capabilities & NET_ADMIN != 0))
}

fn judged_buffer(limit: u64, privileged: bool) -> Finding {
    if privileged {
        return Finding::ok(
            "rmem_max",
            "this process may set any size of a receive buffer (CAP_NET_ADMIN)",
        );
    }
    let remedy = format!(
        "a full buffer loses packets while the receiver does not run, or when several peers send \
         at once; packets are then sent again, which costs throughput on fast networks: `sysctl -w \
         net.core.rmem_max={WANTED_BUFFER}`, as root"
    );
    let found = format!("a receive buffer holds at most {} (net.core.rmem_max)", bytes(limit));
    Finding::ok("rmem_max", found).unless(limit >= RECEIVE_BUFFER, remedy)
}

fn shm() -> Finding {
    let Ok(found) = statvfs("/dev/shm") else {
        let remedy = "set XDG_RUNTIME_DIR to a directory of mode 700 for the files of `adverb run`";
        return Finding::warn("/dev/shm", "there is none", remedy);
    };
    if found.flags().contains(FsFlags::ST_RDONLY) {
        let remedy = "mount it for writing; `adverb run` tries other directories by itself, but \
                      other programs (UCX, MPI) may need /dev/shm";
        return Finding::warn("/dev/shm", "it is mounted read-only", remedy);
    }
    let free = found.blocks_available().saturating_mul(found.fragment_size());
    let remedy = "`docker run --shm-size=64m`, or XDG_RUNTIME_DIR on another file system; `adverb \
                  run` tries other directories by itself, but other programs (UCX, MPI) may need \
                  /dev/shm";
    Finding::ok("/dev/shm", format!("{} are free", bytes(free))).unless(free >= ROOM, remedy)
}

/// The place where `adverb run` puts its replacement of `/dev/infiniband` and sysfs.
fn places() -> Finding {
    let places = [std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from)];
    let more = ["/dev/shm", "/tmp", "/var/tmp"].map(|p| Some(PathBuf::from(p)));
    let writable = |path: &Path| nix::unistd::access(path, nix::unistd::AccessFlags::W_OK).is_ok();
    let first = places.into_iter().chain(more).flatten().find(|path| writable(path));
    match first {
        Some(path) => {
            let found = format!("{} has room for the files of `adverb run`", path.display());
            Finding::ok("files", found)
        }
        None => Finding::warn(
            "files",
            "no directory has room for the files of /dev/infiniband and /sys/class/infiniband",
            "programs that read these files (UCX, NCCL) find no device: set XDG_RUNTIME_DIR to a \
             directory of mode 700",
        ),
    }
}

fn memory() -> Finding {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some((group, limit, used)) = limit_of(&own, Path::new("/sys/fs/cgroup")) else {
        return Finding::ok("memory", "no control group limits the memory");
    };
    let left = limit.saturating_sub(used);
    let found = format!(
        "the control group {group} has {}, of which {} are left",
        bytes(limit),
        bytes(left)
    );
    let remedy = "registrations and forks that do not fit fail with ENOMEM: give the container or the service more memory";
    Finding::ok("memory", found).unless(left >= MEMORY, remedy)
}

/// The smallest memory limit that applies to a process: the control group, its limit and its usage.
fn limit_of(own: &str, root: &Path) -> Option<(String, u64, u64)> {
    let mut narrowest: Option<(String, u64, u64)> = None;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, group) = (parts.next()?, parts.next()?);
        let (below, limit, used) = match controllers {
            "" => ("", "memory.max", "memory.current"),
            list if list.split(',').any(|c| c == "memory") => {
                ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
            }
            _ => continue,
        };
        let number = |at: &Path| fs::read_to_string(at).ok()?.trim().parse::<u64>().ok();
        for above in Path::new(group).ancestors() {
            let directory = root.join(below).join(above.strip_prefix("/").unwrap_or(above));
            let Some(limit) = number(&directory.join(limit)).filter(|n| *n < 1 << 60) else {
                continue;
            };
            let used = number(&directory.join(used)).unwrap_or(0);
            let left = |limit: u64, used: u64| limit.saturating_sub(used);
            if narrowest.as_ref().is_none_or(|(_, l, u)| left(limit, used) < left(*l, *u)) {
                narrowest = Some((above.display().to_string(), limit, used));
            }
        }
    }
    narrowest
}

#[cfg(test)]
mod tests {
    use super::super::finding::State;
    use super::*;

    /// DOC-5: limits that are too small are named.
    #[test]
    fn small_limits_are_warned_of() {
        assert_eq!(descriptors(1024, 4096).state, State::Ok);
        assert!(descriptors(64, 4096).remedy.unwrap().ends_with("`ulimit -n 4096`"));
        assert!(descriptors(64, 64).remedy.unwrap().contains("hard limit"));
        assert_eq!(locked(RLIM_INFINITY).state, State::Ok);
    }

    /// DOC-5: the cost of a small receive buffer and its remedy are named.
    #[test]
    fn a_small_receive_buffer_is_warned_of() {
        let small = judged_buffer(212_992, false);
        assert_eq!((small.state, small.found.contains("208 KiB")), (State::Warn, true));
        assert!(small.remedy.unwrap().contains("`sysctl -w net.core.rmem_max=33554432`"));
        assert_eq!(judged_buffer(32 << 20, false).state, State::Ok);
        assert_eq!(judged_buffer(212_992, true).state, State::Ok);
    }

    /// DOC-5: the group with the smallest limit is found, in both versions of control groups.
    #[test]
    fn the_narrowest_group_is_found() {
        let root = std::env::temp_dir().join(format!("adverb-doctor-{}", std::process::id()));
        let put = |name: &str, text: &str| {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("a/b/memory.max", "max\n");
        put("a/memory.max", "1000\n");
        put("a/memory.current", "400\n");
        assert_eq!(limit_of("0::/a/b\n", &root), Some(("/a".into(), 1000, 400)));
        assert_eq!(limit_of("0::/x\n", &root), None);
        put("memory/c/memory.limit_in_bytes", "500\n");
        put("memory/c/memory.usage_in_bytes", "450\n");
        assert_eq!(
            limit_of("5:cpu:/c\n4:memory:/c\n0::/a/b\n", &root),
            Some(("/c".into(), 500, 450))
        );
        fs::remove_dir_all(root).unwrap();
    }
}
