//! Whether the process stands still: all threads of the program sleep without a time limit.
use adverb_device::asleep::call::sleeps_for_ever;
use adverb_device::asleep::{is_ours, switches_in};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time between two looks at the threads.
const PACE: Duration = Duration::from_millis(250);

/// Looks at the threads from time to time.
pub(super) struct Stillness {
    /// The threads have to sleep for this time.
    limit: Duration,
    looked: Instant,
    /// The sleeping threads with the number of their context switches.
    threads: BTreeMap<i32, u64>,
    since: Instant,
    /// This state was reported.
    told: bool,
}

impl Stillness {
    pub fn new(limit: Duration) -> Self {
        let now = Instant::now();
        Stillness { limit, looked: now, threads: BTreeMap::new(), since: now, told: false }
    }

    /// Does the process stand still for the first time in its present state?
    pub fn begins(&mut self) -> bool {
        if self.looked.elapsed() < PACE {
            return false;
        }
        self.looked = Instant::now();
        let threads = sleepers().unwrap_or_default();
        if threads.is_empty() || threads != self.threads {
            (self.threads, self.since, self.told) = (threads, Instant::now(), false);
            return false;
        }
        let begins = !self.told && self.since.elapsed() >= self.limit;
        self.told |= begins;
        begins
    }
}

/// The program's threads with the number of their context switches. `None` if a thread does not
/// sleep without a time limit.
fn sleepers() -> Option<BTreeMap<i32, u64>> {
    let mut all = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
        let (task, id) = (task.path(), task.file_name().to_str()?.parse().ok()?);
        let read = |file: &str| std::fs::read_to_string(task.join(file)).ok();
        if is_ours(read("comm")?.trim_end()) {
            continue;
        }
        if !sleeps_for_ever(&read("syscall")?) {
            return None;
        }
        all.insert(id, switches_in(&read("status")?)?);
    }
    Some(all)
}
