//! The shared state of a hunted process: its schedule, the points met, and the time its calls have
//! waited.
use crate::late::{LateQueuePair, LateQueuePairs};
use crate::ledger::Sends;
use crate::quiet::Looker;
use adverb_choice::{Call, Choice, ChoiceEntry, Point, Schedule, Site};
use adverb_device::node::Node;
use adverb_device::{Cq, ranks};
use adverb_sync::Ranked;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::{Duration, Instant};

/// The file of the schedule, or a seed.
pub const SCHEDULE: &str = "ADVERB_SCHEDULE";
/// The log file of points met and choices made.
pub const LOG: &str = "ADVERB_SCHEDULE_LOG";
/// If the log begins with this line, the log also has the places of all points in words.
pub const WORDS: &str = "words\n";

/// The longest time that a completion is withheld during the first holds of a process.
const LONGEST: Duration = Duration::from_millis(20);
/// The number of these holds.
const LONG_HOLDS: u64 = 20;
/// The longest time during later holds: short, so that a program that polls often is not slowed
/// down for seconds.
const SHORT: Duration = Duration::from_millis(3);
/// This many times completions of a process are withheld.
const HOLDS: u64 = 100;
/// A call that waits for all packets on their way ends when all processes of the run have come to
/// rest, and nothing has come for this time,
const REST: Duration = Duration::from_micros(200);
/// or when nothing has come for this time,
const QUIET: Duration = Duration::from_micros(1500);
/// and after this time at the latest.
const LONGEST_CALL: Duration = Duration::from_millis(12);
/// All calls of a process together wait no longer than this: a correct program always goes on.
const ALL_CALLS: Duration = Duration::from_millis(500);
/// While a call waits, another thread may run without progress. After this much processor time, the
/// hunt assumes that the thread only polls in a loop.
const CALL_TIME: Duration = Duration::from_micros(300);
thread_local! {
    /// Looks at the processes of the run.
    static LOOKER: RefCell<Looker> = RefCell::default();
}

/// A thread about to end may have destroyed its variables already: then the result is the default.
fn with_looker<R: Default>(does: impl FnOnce(&mut Looker) -> R) -> R {
    LOOKER.try_with(|looker| does(&mut looker.borrow_mut())).unwrap_or_default()
}

/// Progress was made, so the silent time of this thread's look begins again.
pub(crate) fn restart_look() {
    with_looker(Looker::restart);
}

type Namer = fn(usize) -> String;
/// Functions that name code in a schedule and in words.
static NAMERS: OnceLock<(Namer, Namer)> = OnceLock::new();

/// Sets the functions that name an address of the program's code: by file and offset, and in words.
/// Called once, by the face that knows the names.
pub fn set_namers(place: fn(usize) -> String, words: fn(usize) -> String) {
    let _ = NAMERS.set((place, words));
}

type Witness = fn(Call, Choice, usize);
/// The function that hears of choices.
static WITNESS: OnceLock<Witness> = OnceLock::new();

/// Sets the function that hears of each choice, with the address of the program's call. The calling
/// thread makes the call.
pub fn set_witness(witness: fn(Call, Choice, usize)) {
    let _ = WITNESS.set(witness);
}

/// By kind of call, address and object: the site, and the number of visits.
type Points = HashMap<(Call, usize, u64), (Site, u64)>;

/// The shared state of a hunted process.
#[derive(Debug)]
pub(crate) struct Hunt {
    log: Option<File>,
    /// Are places written in words? Words cost a look into the program's file.
    words: bool,
    pub(crate) story: Ranked<Story, ranks::AdversaryNotes>,
    /// Completions added and requests posted.
    pub(crate) beats: AtomicU64,
    /// Nanoseconds that calls have waited in total.
    pub(crate) waited: AtomicU64,
    /// How often completions were withheld.
    pub(crate) holds: AtomicU64,
    /// How many calls returned EINTR.
    pub(crate) interrupts: AtomicU64,
    pub(crate) queues: Ranked<Queues, ranks::AdversaryNotes>,
    pub(crate) sends: Ranked<Sends, ranks::AdversaryNotes>,
    pub(crate) late: Ranked<LateQueuePairs, ranks::AdversaryNotes>,
    /// The threads that have polled an empty queue, and when they did last.
    pub(crate) pollers: Ranked<HashMap<i32, Instant>, ranks::AdversaryNotes>,
}

/// The schedule, and the points met.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) schedule: Schedule,
    pub(crate) points: Points,
    /// For queues made by [`part`] alone: their points and choices.
    pub(crate) part: Option<HuntedPart>,
}

/// The hunted completion queues.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    /// The process with the thread that releases completions.
    pub(crate) thread_of: u32,
    pub(crate) list: Vec<Weak<Cq>>,
}

pub(crate) static HUNT: OnceLock<Option<Hunt>> = OnceLock::new();
/// The hunt of a part of this process.
pub(crate) static PART: OnceLock<Hunt> = OnceLock::new();

/// The hunt of this process, if there is a hunt.
pub(crate) fn hunt() -> Option<&'static Hunt> {
    HUNT.get_or_init(Hunt::asked).as_ref()
}

/// The hunt for a queue that this thread makes.
pub(crate) fn hunted_here() -> Option<&'static Hunt> {
    if MAKES.get() { PART.get() } else { hunt() }
}

thread_local! {
    /// This thread makes hunted queues.
    pub(crate) static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// The points and choices of the hunted part of a process.
#[derive(Clone, Debug, Default)]
pub struct HuntedPart {
    /// Sites with their objects, in the order of visits.
    pub met: Vec<(Site, u64)>,
    /// Choices in order.
    pub made: Vec<ChoiceEntry>,
    /// The number of the queue created before the part's first queue.
    before: Option<u64>,
}

impl Hunt {
    fn asked() -> Option<Hunt> {
        let asked = adverb_os::chosen(SCHEDULE)
            .and_then(|v| v.into_string().ok())
            .filter(|v| !v.is_empty());
        let log = adverb_os::chosen(LOG).filter(|v| !v.is_empty());
        if asked.is_none() && log.is_none() {
            return None;
        }
        let schedule = asked.map_or_else(Schedule::default, |asked| {
            read(&asked).unwrap_or_else(|why| {
                log::error!("{SCHEDULE}: {why}");
                Schedule::default()
            })
        });
        let open = |path| File::options().read(true).append(true).create(true).open(path).ok();
        Some(Hunt::new(schedule, log.and_then(open)))
    }

    pub(crate) fn new(schedule: Schedule, log: Option<File>) -> Hunt {
        let mut head = [0; WORDS.len()];
        let asked = |log: &File| log.read_at(&mut head, 0).is_ok() && head == *WORDS.as_bytes();
        let words = schedule.is_empty() || log.as_ref().is_some_and(asked);
        Hunt {
            log,
            words,
            story: Ranked::new(Story { schedule, ..Story::default() }),
            beats: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            interrupts: AtomicU64::new(0),
            queues: Ranked::default(),
            sends: Ranked::default(),
            late: Ranked::default(),
            pollers: Ranked::default(),
        }
    }

    /// Writes each line with a single write, so that lines of several processes do not mix.
    pub(crate) fn say(&self, line: &str) {
        if let Some(mut log) = self.log.as_ref() {
            let _ = log.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// The program makes a call at `address` on an object. Answers the choice.
    pub(crate) fn at(&self, call: Call, address: usize, object: u64) -> Option<Choice> {
        let mut story = self.story.lock();
        let Story { schedule, points, part } = &mut *story;
        let before = part.as_ref().and_then(|part| part.before).unwrap_or_default();
        let object = object.saturating_sub(before);
        let (site, count) = points.entry((call, address, object)).or_insert_with(|| {
            let place =
                NAMERS.get().map_or_else(|| format!("{address:#x}"), |(place, _)| place(address));
            let site = Site { call, place };
            match NAMERS.get().filter(|_| self.words) {
                Some((_, words)) => self.say(&format!("site {site} {object} {}", words(address))),
                None => self.say(&format!("site {site} {object}")),
            }
            if let Some(part) = part {
                part.met.push((site.clone(), object));
            }
            (site, 0)
        });
        *count += 1;
        if *count > 1 && count.is_power_of_two() {
            self.say(&format!("count {site} {}", count.ilog2()));
        }
        let point = Point { site: site.clone(), object, count: *count };
        let choice = schedule.choice(&point)?;
        let made = ChoiceEntry::at(point, choice);
        self.say(&format!("made {made}"));
        if let Some(part) = part {
            part.made.push(made);
        }
        drop(story);
        if let Some(witness) = WITNESS.get() {
            witness(call, choice, address);
        }
        Some(choice)
    }

    /// The seed of the schedule.
    pub(crate) fn seed(&self) -> u64 {
        self.story.lock().schedule.seed
    }

    /// A queue with this number is about to be made.
    pub(crate) fn note_first_queue(&self, number: u32) {
        if let Some(part) = &mut self.story.lock().part {
            part.before.get_or_insert(u64::from(number) - 1);
        }
    }

    /// The longest time of the next hold. `None`: the process had all its holds.
    pub(crate) fn next_hold(&self) -> Option<Duration> {
        let nth = self.holds.fetch_add(1, Ordering::Relaxed);
        (nth < HOLDS).then_some(if nth < LONG_HOLDS { LONGEST } else { SHORT })
    }

    /// A queue pair carries out its requests late from now on.
    pub(crate) fn add_late(&self, qpn: u32, longest: Duration, until_sleep: bool) {
        let since = Instant::now();
        self.late.lock().list.push(LateQueuePair { qpn, since, longest, until_sleep });
    }

    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all packets on their way have come.
    pub(crate) fn wait(&self) {
        let node = Node::existing();
        let begun = Instant::now();
        let (mut seen, mut since) = (self.beats.load(Ordering::Relaxed), begun);
        restart_look();
        while begun.elapsed() < LONGEST_CALL
            && self.waited.load(Ordering::Relaxed) < ALL_CALLS.as_nanos() as u64
        {
            let _ = node.as_ref().map(|node| node.progress());
            let now = self.beats.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
                restart_look();
            } else if self.is_at_rest(CALL_TIME) && since.elapsed() >= REST
                || since.elapsed() >= QUIET
            {
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        self.waited.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// One look at all processes of the run: since the last restart of this thread's [`Looker`],
    /// have they come to rest? `false` as well if there is no log that names the processes.
    pub(crate) fn is_at_rest(&self, enough: Duration) -> bool {
        let log = self.log.as_ref();
        log.is_some_and(|log| with_looker(|looker| looker.is_quiet(log, enough)))
    }
}

fn read(asked: &str) -> Result<Schedule, String> {
    if asked.trim().parse::<u64>().is_ok() {
        return asked.parse().map_err(|e| format!("{e}"));
    }
    let text = std::fs::read_to_string(asked).map_err(|e| format!("{asked}: {e}"))?;
    text.parse().map_err(|e| format!("{asked}: {e}"))
}
