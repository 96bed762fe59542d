//! A cgroup that may use half a processor, made by this program and removed at its end.

use std::path::{Path, PathBuf};
use std::time::Duration;

use adverb_bench::Result;
use adverb_bench::ends::Ends;
use adverb_foreign::device::loopback;

/// Half a processor: 50 ms of each 100 ms, in microseconds.
const QUOTA: &str = "50000";
const PERIOD: &str = "100000";
/// The programs of an end join the cgroup by this command.
const JOIN: &str = r#"echo $$ >"$0/cgroup.procs" && exec "$@""#;
/// How often the removal is tried. A killed process may still be ending.
const REMOVALS: usize = 100;

/// A hierarchy of cgroups with the controller of processors.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hierarchy {
    mount: PathBuf,
    /// This process's cgroup below the mount.
    own: PathBuf,
    /// Files of a cgroup and the values that set the limit.
    limit: Vec<(&'static str, String)>,
}

/// The cgroup.
pub struct HalfCpu {
    dir: PathBuf,
}

impl HalfCpu {
    /// Makes the cgroup: inside this process's own cgroup, or as close to it as the machine allows.
    /// Only the new cgroup is changed.
    pub fn new() -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
        let (mounts, own) = (read("/proc/self/mounts")?, read("/proc/self/cgroup")?);
        let mut why = "no hierarchy of cgroups is mounted that limits processors".to_string();
        for hierarchy in hierarchies(&mounts, &own) {
            for parent in hierarchy.own.ancestors() {
                let parent = hierarchy.mount.join(parent);
                match Self::below(&parent, &hierarchy.limit) {
                    Ok(half) => return Ok(half),
                    Err(reason) => why = reason,
                }
            }
        }
        Err(format!("no cgroup of half a processor: {why}"))
    }

    fn below(parent: &Path, limit: &[(&str, String)]) -> Result<Self> {
        let dir = parent.join(format!("adverb-bench-{}", std::process::id()));
        std::fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        // From here on the cgroup is removed when this value is dropped.
        let half = Self { dir };
        for (file, value) in limit {
            let file = half.dir.join(file);
            // The kernel makes the files, so a missing file means a missing controller.
            let mut options = std::fs::OpenOptions::new();
            let written = options
                .write(true)
                .open(&file)
                .and_then(|mut f| std::io::Write::write_all(&mut f, value.as_bytes()));
            written.map_err(|e| format!("{}: {e}", file.display()))?;
        }
        Ok(half)
    }

    /// Both ends in the cgroup, on the loopback interface.
    pub fn ends(&self) -> Result<Ends> {
        let mut ends = Ends::loopback(&loopback()?);
        let join = ["sh", "-c", JOIN].map(str::to_string).into_iter();
        let before: Vec<String> = join.chain([self.dir.display().to_string()]).collect();
        ends.server.before.clone_from(&before);
        ends.client.before = before;
        Ok(ends)
    }
}

impl Drop for HalfCpu {
    fn drop(&mut self) {
        for _ in 0..REMOVALS {
            if std::fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("places: {} cannot be removed", self.dir.display());
    }
}

/// The hierarchies that may limit processors: of version 2, and of version 1 with `cpu`.
fn hierarchies(mounts: &str, own: &str) -> Vec<Hierarchy> {
    let cgroup = |wanted: fn(&str, &str) -> bool| {
        own.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':');
            let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
            wanted(id, controllers).then(|| PathBuf::from(path.trim_start_matches('/')))
        })
    };
    let has_cpu = |list: &str| list.split(',').any(|c| c == "cpu");
    let found = mounts.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let (mount, kind, options) = (*fields.get(1)?, *fields.get(2)?, *fields.get(3)?);
        let (own, limit) = match kind {
            "cgroup2" => (
                cgroup(|id, controllers| id == "0" && controllers.is_empty())?,
                vec![("cpu.max", format!("{QUOTA} {PERIOD}"))],
            ),
            "cgroup" if has_cpu(options) => (
                cgroup(|_, controllers| controllers.split(',').any(|c| c == "cpu"))?,
                vec![
                    ("cpu.cfs_period_us", PERIOD.to_string()),
                    ("cpu.cfs_quota_us", QUOTA.to_string()),
                ],
            ),
            _ => return None,
        };
        Some(Hierarchy { mount: PathBuf::from(mount), own, limit })
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hierarchy_is_found_in_both_versions() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw,mode=755 0 0\n\
                      cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0\n\
                      cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n";
        let found = hierarchies(mounts, "4:cpu,cpuacct:/a/b\n3:cpuset:/\n0::/c\n");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&found[0].mount, &found[0].own),
            (&"/sys/fs/cgroup/cpu,cpuacct".into(), &"a/b".into())
        );
        assert_eq!(found[0].limit.len(), 2);
        let found =
            hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0\n", "0::/user.slice/x\n");
        assert_eq!(
            (&found[0].mount, &found[0].own),
            (&"/sys/fs/cgroup".into(), &"user.slice/x".into())
        );
        assert_eq!(found[0].limit, [("cpu.max", "50000 100000".to_string())]);
        assert!(hierarchies("proc /proc proc rw 0 0\n", "0::/\n").is_empty());
    }
}
