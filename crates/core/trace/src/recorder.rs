//! Recording in this process: its part, and the state of the recorder.
use crate::Record;
use crate::clock::now;
use crate::part::{LIMIT, Mapped};
use nix::unistd::{getpid, gettid};
use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Limit of traced generations of forks, each the child of the one before.
const GENERATIONS: usize = 16;
/// Number of file names to try for a part.
const NAMES: u32 = 1000;

/// Whether this process is traced. Assembler code reads this flag.
pub static ON: AtomicBool = AtomicBool::new(false);

/// One part per generation, because a child also has the part of its parent.
static PARTS: [OnceLock<Option<Mapped>>; GENERATIONS] = [const { OnceLock::new() }; GENERATIONS];
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
static GENERATION: AtomicUsize = AtomicUsize::new(0);
/// The process that records. A child made without our knowledge (`vfork`, `_Fork`, `clone`) may run
/// in its parent's memory. Such a child records nothing, and its end does not count as the end of
/// its parent.
static PROCESS: AtomicI32 = AtomicI32::new(0);

thread_local! {
    /// This thread's number, and the generation for which the thread's name was recorded.
    static THREAD: Cell<(i32, usize)> = const { Cell::new((0, usize::MAX)) };
}

/// Is this process traced?
#[inline]
pub fn on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The slot of this process's part; `None` if this process does not record.
fn place() -> Option<&'static OnceLock<Option<Mapped>>> {
    let own = on() && PROCESS.load(Ordering::Relaxed) == getpid().as_raw();
    own.then(|| PARTS.get(GENERATION.load(Ordering::Relaxed)))?
}

/// Creates the part. A failure is logged and has no other effect.
fn begun() -> Option<Mapped> {
    let directory = DIRECTORY.get()?;
    let made = create(directory).inspect_err(|e| {
        log::error!("this process is not traced: {}: {e}", directory.display());
    });
    let part = made.ok()?;
    part.add(&line_of(&first()));
    Some(part)
}

/// Starts tracing: this process and its children record to parts in the directory. Later calls have
/// no effect.
pub fn begin(directory: &Path) {
    if DIRECTORY.set(directory.to_owned()).is_ok() {
        PROCESS.store(getpid().as_raw(), Ordering::Relaxed);
        ON.store(true, Ordering::Relaxed);
    }
}

/// Gives the child of a fork its own part, from its first record on.
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    PROCESS.store(getpid().as_raw(), Ordering::Relaxed);
}

fn create(directory: &Path) -> io::Result<Mapped> {
    let pid = getpid();
    let made =
        (0..NAMES).map(|n| Mapped::create(&directory.join(format!("{pid}-{n}.part")), LIMIT));
    let mut other =
        made.filter(|made| !matches!(made, Err(e) if e.kind() == io::ErrorKind::AlreadyExists));
    other.next().unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

fn first() -> Record {
    let command = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let words = command.split(|b| *b == 0).filter(|word| !word.is_empty());
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Record::Process {
        t: now(),
        pid: std::process::id(),
        name: std::fs::read_to_string("/proc/self/comm").unwrap_or_default().trim_end().to_owned(),
        command: words.map(|word| String::from_utf8_lossy(word).into_owned()).collect(),
        wall: u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX),
    }
}

fn line_of(record: &Record) -> Vec<u8> {
    let mut line = Vec::with_capacity(256);
    // A record always converts to JSON.
    if serde_json::to_writer(&mut line, record).is_ok() {
        line.push(b'\n');
    }
    line
}

/// Records `record` if this process is traced.
pub fn record(record: &Record) {
    if let Some(part) = place().and_then(|place| place.get_or_init(begun).as_ref()) {
        part.add(&line_of(record));
    }
}

/// The number of this thread. The first call also records the thread's name.
#[must_use]
pub fn thread() -> i32 {
    let (tid, named) = THREAD.get();
    let generation = GENERATION.load(Ordering::Relaxed);
    if named == generation {
        return tid;
    }
    let tid = gettid().as_raw();
    if place().is_some() {
        THREAD.set((tid, generation));
        let name =
            std::fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap_or_default();
        record(&Record::Thread { tid, name: name.trim_end().to_owned() });
    }
    tid
}

/// Records the end of the process. Safe in a signal handler; never waits.
pub fn finish() {
    if let Some(part) = place().and_then(|place| place.get()?.as_ref()) {
        part.end();
    }
}
