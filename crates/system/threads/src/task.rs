//! The files of `/proc` about a thread.
use super::call::{Call, Line, ReplacedCall, parse};
use nix::unistd::getpid;
use std::fmt;
use std::io::{Error, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// Prefix of the names of the device's own threads.
const OURS: &str = "adverb";

/// The thread that waits by `ppoll` in place of another call. 0: none.
static WAITS: AtomicI32 = AtomicI32::new(0);
/// The number of that call, its `epoll` set, its limit in nanoseconds, and the array of the
/// `ppoll`.
static CALL: AtomicI64 = AtomicI64::new(0);
static SET: AtomicI32 = AtomicI32::new(-1);
static LIMIT: AtomicU64 = AtomicU64::new(0);
static ARRAY: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// The thread has woken, and handles packets.
static DRIVES: AtomicBool = AtomicBool::new(false);
/// The call has no limit.
const ENDLESS: u64 = u64::MAX;

/// The thread `id` of this process is about to sleep in a `ppoll` in place of another system call,
/// on `entries` entries of `pollfd` at the address `array`. The `ppoll` is shown as that call, with
/// the limit that the program chose.
pub fn note_wait(id: i32, call: ReplacedCall, array: usize, entries: usize) {
    WAITS.store(0, Ordering::SeqCst);
    CALL.store(call.number, Ordering::SeqCst);
    SET.store(call.set.unwrap_or(-1), Ordering::SeqCst);
    let limit = call.limit.map_or(ENDLESS, |limit| limit.as_nanos() as u64);
    LIMIT.store(limit, Ordering::SeqCst);
    ARRAY[0].store(array as u64, Ordering::SeqCst);
    ARRAY[1].store(entries as u64, Ordering::SeqCst);
    DRIVES.store(false, Ordering::SeqCst);
    WAITS.store(id, Ordering::SeqCst);
}

/// The `ppoll` has returned, and the thread handles packets. It counts as a thread in its call
/// until [`note_end`].
pub fn note_drive(id: i32) {
    if WAITS.load(Ordering::SeqCst) == id {
        DRIVES.store(true, Ordering::SeqCst);
    }
}

/// The wait of the thread is over.
pub fn note_end(id: i32) {
    let _ = WAITS.compare_exchange(id, 0, Ordering::SeqCst, Ordering::Relaxed);
}

/// A process, as `/proc` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Process {
    /// The calling process.
    Own,
    /// The process with this number.
    Number(i32),
}

impl Process {
    /// The number of the process.
    #[must_use]
    pub fn number(self) -> i32 {
        match self {
            Process::Own => getpid().as_raw(),
            Process::Number(number) => number,
        }
    }

    /// The threads of the process. `None` if the kernel does not list them.
    #[must_use]
    pub fn tasks(self) -> Option<Vec<Task>> {
        let tasks = std::fs::read_dir(format!("{self}/task")).ok()?.flatten();
        let ids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
        Some(ids.map(|id| Task { process: self, id }).collect())
    }

    /// The threads of the process with their names, without the device's own threads.
    #[must_use]
    pub fn program_tasks(self) -> Option<Vec<(Task, String)>> {
        let named = |task: Task| Some((task, task.status()?)).filter(|(_, s)| !task.is_ours(s));
        Some(self.tasks()?.into_iter().filter_map(named).map(|(task, s)| (task, s.name)).collect())
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Process::Own => f.write_str("/proc/self"),
            Process::Number(number) => write!(f, "/proc/{number}"),
        }
    }
}

/// A thread of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// The process.
    pub process: Process,
    /// The number of the thread (`gettid`).
    pub id: i32,
}

impl Task {
    /// A thread of the calling process.
    #[must_use]
    pub fn own(id: i32) -> Task {
        Task { process: Process::Own, id }
    }

    /// The path of the file with the thread's system call. Formatting allocates nothing.
    #[must_use]
    pub fn call_path(self) -> impl fmt::Display {
        fmt::from_fn(move |f| write!(f, "{self}/syscall"))
    }

    /// The thread's system call.
    ///
    /// # Errors
    /// The thread has ended, or the kernel does not show the call.
    pub fn line(self) -> Result<Line, Error> {
        let line = std::fs::read_to_string(self.call_path().to_string())?;
        let line = parse(&line).ok_or(ErrorKind::InvalidData)?;
        Ok(match (line, self.noted()) {
            (Line::Blocked(call), Some(noted)) if call.number == noted.number => {
                Line::Blocked(noted.at(call.registers))
            }
            (line, _) => line,
        })
    }

    /// The `ppoll` in place of the program's call from which the thread has woken to handle
    /// packets.
    pub(crate) fn drives(self) -> Option<Call> {
        self.noted().filter(|_| DRIVES.load(Ordering::SeqCst))
    }

    /// The `ppoll` of [`note_wait`]. A thread that a handler took out of it by `longjmp` is
    /// elsewhere.
    fn noted(self) -> Option<Call> {
        let waits = || self.process == Process::Own && WAITS.load(Ordering::SeqCst) == self.id;
        if !waits() {
            return None;
        }
        let limit = LIMIT.load(Ordering::SeqCst);
        let call = ReplacedCall {
            number: CALL.load(Ordering::SeqCst),
            set: Some(SET.load(Ordering::SeqCst)).filter(|set| *set >= 0),
            limit: (limit != ENDLESS).then_some(Duration::from_nanos(limit)),
        };
        let array = ARRAY.each_ref().map(|part| part.load(Ordering::SeqCst));
        // Another wait has not begun meanwhile.
        waits().then(|| Call::ppoll(array, call))
    }

    /// The thread's name, state and switches. `None` if the thread has ended.
    #[must_use]
    pub fn status(self) -> Option<Status> {
        Status::parse(&std::fs::read_to_string(format!("{self}/status")).ok()?)
    }

    /// How long the thread has run so far, and how long it has waited for a processor. `None` if
    /// the thread has ended, or the kernel does not tell.
    #[must_use]
    pub fn times(self) -> Option<[Duration; 2]> {
        let text = std::fs::read_to_string(format!("{self}/schedstat")).ok()?;
        let mut numbers = text.split_ascii_whitespace().map(|word| word.parse().ok());
        Some([numbers.next()??, numbers.next()??].map(Duration::from_nanos))
    }

    /// Is this a thread of the device? The program's first thread may have any name.
    #[must_use]
    pub fn is_ours(self, status: &Status) -> bool {
        self.id != self.process.number()
            && status
                .name
                .strip_prefix(OURS)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/task/{}", self.process, self.id)
    }
}

/// The content of `/proc/PID/task/TID/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The thread's name.
    pub name: String,
    /// The letter of the thread's state, such as `S` for a thread that sleeps.
    pub state: char,
    /// How often the thread has left the processor. While a thread is blocked, this number does not
    /// change.
    pub switches: u64,
}

impl Status {
    /// Reads the text. `None` for a text in another format.
    #[must_use]
    pub fn parse(text: &str) -> Option<Status> {
        let value = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let count = |name| value(name)?.parse::<u64>().ok();
        Some(Status {
            name: value("Name")?.to_owned(),
            state: value("State")?.chars().next()?,
            switches: count("voluntary_ctxt_switches")? + count("nonvoluntary_ctxt_switches")?,
        })
    }
}
