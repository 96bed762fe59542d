//! Asks the processes of the user what they do.
use adverb_device::snapshot::{Page, Pair, Process, Queue};
use adverb_local::{Asker, Silence, Slot};
use adverb_os::User;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Longest wait for the answers.
pub const WAIT: Duration = Duration::from_millis(200);

/// A process with its whole answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    /// The process id here; if the process is in another PID namespace, the process id there.
    pub pid: u32,
    /// The process is in another PID namespace.
    pub elsewhere: bool,
    pub process: Process,
    pub counters: BTreeMap<String, u64>,
    pub queues: BTreeMap<u32, Queue>,
    pub pairs: BTreeMap<u32, Pair>,
}

/// A process without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Silent {
    pub pid: u32,
    pub slot: Slot,
    pub name: String,
    pub why: String,
}

/// The answers to one round of questions.
#[derive(Clone, Debug)]
pub struct Round {
    pub at: Instant,
    pub answered: Vec<Answered>,
    pub silent: Vec<Silent>,
}

/// Asks in rounds.
pub struct Rounds(Asker);

impl Rounds {
    pub fn new() -> Result<Self, String> {
        Asker::new().map(Rounds).map_err(|e| format!("the processes cannot be asked: {e}"))
    }

    /// Asks every process, and waits for the answers for at most [`WAIT`].
    pub fn ask(&mut self) -> Round {
        let mut by_slot: BTreeMap<Slot, Answered> = BTreeMap::new();
        let mut bad: BTreeMap<Slot, (i32, String)> = BTreeMap::new();
        let late = self.0.ask(0, WAIT, |slot, pid, bytes| match Page::parse(bytes) {
            Ok(page) => {
                let next = page.next;
                add(by_slot.entry(slot).or_default(), page, pid);
                next
            }
            Err(why) => {
                by_slot.remove(&slot);
                bad.insert(slot, (pid, why.to_string()));
                None
            }
        });
        let at = Instant::now();
        let silent = |pid: i32, slot, why| {
            let name = name_of(pid);
            Silent { pid: pid.unsigned_abs(), slot, name, why }
        };
        let bad = bad.into_iter().map(|(slot, (pid, why))| silent(pid, slot, why));
        let mut all: Vec<Silent> = bad.collect();
        for one in late {
            by_slot.remove(&one.slot);
            let why = match one.why {
                Silence::Late => state_of(one.pid),
                Silence::Full => "it accepts no connections".to_owned(),
                Silence::OtherUser(uid) => format!("its name is held by {}", User(uid)),
            };
            all.push(silent(one.pid, one.slot, why));
        }
        // A process with several slots has answered at each.
        by_slot.retain(|slot, answered| answered.process.slot == *slot);
        // Another slot of the same process has answered.
        all.retain(|silent| {
            by_slot.values().all(|answered| answered.elsewhere || answered.pid != silent.pid)
        });
        Round { at, answered: by_slot.into_values().collect(), silent: all }
    }
}

fn add(answered: &mut Answered, page: Page, pid: i32) {
    answered.elsewhere = pid == 0;
    answered.pid = if pid == 0 { page.process.pid } else { pid.unsigned_abs() };
    answered.process = page.process;
    answered.counters.extend(page.counters);
    answered.queues.extend(page.queues.into_iter().map(|queue| (queue.number, queue)));
    answered.pairs.extend(page.queue_pairs.into_iter().map(|pair| (pair.number, pair)));
}

fn name_of(pid: i32) -> String {
    let name =
        if pid == 0 { None } else { std::fs::read_to_string(format!("/proc/{pid}/comm")).ok() };
    name.map_or_else(|| "?".to_owned(), |name| name.trim_end_matches('\n').to_owned())
}

/// Why a process gives no answer in time.
fn state_of(pid: i32) -> String {
    let why = match adverb_os::ProcessStat::of(pid).map(|stat| stat.state) {
        Some('T') => "stopped",
        Some('t') => "stopped by a debugger",
        Some('D') => "it waits in the kernel",
        Some('Z' | 'X') => "it has ended",
        Some(_) => return format!("no answer in {} ms", WAIT.as_millis()),
        None => return "no answer".to_owned(),
    };
    format!("no answer: {why}")
}
