//! The shared state of a hunted process: its schedule, the points met, and the time its calls have
//! waited.
use super::late::LateQueuePairs;
use super::quiet::{Looker, PROCESS};
use super::{Cq, Ledger, Why};
use crate::node::Node;
use crate::ranks;
use adverb_choice::{Call, Choice, ChoiceEntry, Point, Schedule, Site};
use adverb_sync::Ranked;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The file of the schedule, or a seed.
pub const SCHEDULE: &str = "ADVERB_SCHEDULE";
/// The log file of points met and choices made.
pub const LOG: &str = "ADVERB_SCHEDULE_LOG";
/// If the log begins with this line, the log also has the places of all points in words.
pub const WORDS: &str = "words\n";

/// The number of posts that are refused although the queue has room.
const REFUSALS: u64 = 32;
/// A call that waits for all packets on their way ends when all processes of the run have come to
/// rest, and nothing has come for this time,
const REST: Duration = Duration::from_micros(200);
/// or when nothing has come for this time,
const QUIET: Duration = Duration::from_micros(1500);
/// and after this time at the latest.
const LONGEST_CALL: Duration = Duration::from_millis(12);
/// All calls of a process together wait no longer than this: a correct program always goes on.
const ALL_CALLS: Duration = Duration::from_millis(500);
/// Processor time of a thread without progress, after which the thread counts as waiting: during a
/// call that waits,
const CALL_TIME: Duration = Duration::from_micros(300);
/// during the first holds, because a program may poll for a while before it sleeps,
const FIRST_HOLD_TIME: Duration = Duration::from_millis(20);
const FIRST_HOLDS: u64 = 4;
/// and during later holds.
const HOLD_TIME: Duration = Duration::from_millis(1);
/// Period of the thread that releases withheld completions, and how many periods lie between two
/// progress lines in the log.
const TICK: Duration = Duration::from_micros(500);
const TICKS_A_BEAT: u32 = 100;

thread_local! {
    /// Looks at the processes of the run.
    static LOOKER: RefCell<Looker> = RefCell::default();
}

/// A thread about to end may have destroyed its variables already: then the result is the default.
fn with_looker<R: Default>(does: impl FnOnce(&mut Looker) -> R) -> R {
    LOOKER.try_with(|looker| does(&mut looker.borrow_mut())).unwrap_or_default()
}

type Namer = fn(usize) -> String;
/// Functions that name code in a schedule and in words.
static NAMERS: OnceLock<(Namer, Namer)> = OnceLock::new();

/// Sets the functions that name an address of the program's code: by file and offset, and in words.
/// Called once, by the face that knows the names.
pub fn set_namers(place: fn(usize) -> String, words: fn(usize) -> String) {
    let _ = NAMERS.set((place, words));
}

/// By kind of call, address and object: the site, and the number of visits.
type Points = HashMap<(Call, usize, u64), (Site, u64)>;

/// The shared state of a hunted process.
#[derive(Debug)]
pub struct Hunt {
    pub(super) schedule: Ranked<Arc<Schedule>, ranks::HuntSchedule>,
    log: Option<File>,
    /// Are places written in words? Words cost a look into the program's file.
    words: bool,
    /// For queues made by [`part`] alone: their points and choices, and the number of the first
    /// queue.
    pub(super) part: Option<Ranked<HuntedPart, ranks::HuntPart>>,
    points: Ranked<Points, ranks::HuntPoints>,
    /// Completions added and requests posted.
    pub(super) beats: AtomicU64,
    /// Nanoseconds that calls have waited in total.
    pub(super) waited: AtomicU64,
    /// How often completions were withheld.
    pub(super) holds: AtomicU64,
    /// How many calls returned EINTR.
    pub(super) interrupts: AtomicU64,
    pub(super) cqs: Ranked<Vec<Weak<Cq>>, ranks::HuntQueues>,
    pub(super) ledgers: Ranked<HashMap<u32, Ledger>, ranks::HuntLedgers>,
    pub(super) late: Ranked<LateQueuePairs, ranks::HuntLate>,
    pub(super) refused: Ranked<Refused, ranks::HuntRefused>,
    /// The process with the thread that releases completions.
    thread_of: Ranked<u32, ranks::HuntThread>,
}

static HUNT: OnceLock<Option<Hunt>> = OnceLock::new();
/// The hunt of a part of this process.
static PART: OnceLock<Hunt> = OnceLock::new();

/// The hunt of this process, if there is a hunt.
pub fn hunt() -> Option<&'static Hunt> {
    HUNT.get_or_init(Hunt::asked).as_ref()
}

/// A post at `address` is refused because the send queue is full, before the post reaches the queue
/// pair.
pub fn note_refused(address: usize) {
    if let Some(hunt) = hunt() {
        hunt.refused.lock().note(address);
    }
}

/// The hunt for a queue that this thread makes.
pub(super) fn of_new_queue() -> Option<&'static Hunt> {
    if MAKES.get() { PART.get() } else { hunt() }
}

/// Makes the queues of this process choose by a schedule, whatever the environment variables say.
/// Queues made before are not hunted.
///
/// # Errors
/// The schedule, if a schedule was set, or looked for, already.
pub fn set(schedule: Schedule) -> Result<(), Schedule> {
    let hunt = Hunt::new(schedule, None);
    HUNT.set(Some(hunt))
        .map_err(|hunt| hunt.map(|h| h.schedule.lock().as_ref().clone()).unwrap_or_default())
}

thread_local! {
    /// This thread makes hunted queues.
    static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// The points and choices of the hunted part of a process.
#[derive(Clone, Debug, Default)]
pub struct HuntedPart {
    /// Sites with their objects, in the order of visits.
    pub met: Vec<(Site, u64)>,
    /// Choices in order.
    pub made: Vec<ChoiceEntry>,
    /// The number of the queue created before the part's first queue.
    pub(super) before: Option<u64>,
}

/// Hunts a part of this process by a schedule: the queues made by `make`. Forgets earlier points.
/// The caller makes sure that there is only one part at a time.
///
/// # Errors
/// The whole process is hunted already.
pub fn part<R>(schedule: Schedule, make: impl FnOnce() -> R) -> Result<R, AlreadyHunted> {
    if hunt().is_some() {
        return Err(AlreadyHunted);
    }
    let new = || Hunt { part: Some(Ranked::default()), ..Hunt::new(Schedule::default(), None) };
    let hunt = PART.get_or_init(new);
    *hunt.schedule.lock() = Arc::new(schedule);
    hunt.points.lock().clear();
    hunt.ledgers.lock().clear();
    *hunt.refused.lock() = Refused::default();
    hunt.waited.store(0, Ordering::Relaxed);
    hunt.holds.store(0, Ordering::Relaxed);
    hunt.interrupts.store(0, Ordering::Relaxed);
    if let Some(part) = &hunt.part {
        *part.lock() = HuntedPart::default();
    }
    MAKES.set(true);
    let made = make();
    MAKES.set(false);
    Ok(made)
}

/// Queues made by this thread from now on belong to the hunted part.
pub fn join_part() {
    MAKES.set(true);
}

/// The points and choices of the hunted part so far, and the number of completions and posts.
#[must_use]
pub fn part_so_far() -> (HuntedPart, u64) {
    let of = |h: &Hunt| Some((h.part.as_ref()?.lock().clone(), h.beats.load(Ordering::Relaxed)));
    PART.get().and_then(of).unwrap_or_default()
}

/// The whole process is hunted, so no part can be hunted separately.
#[derive(Clone, Copy, Debug)]
pub struct AlreadyHunted;

/// The choice at a call, for the time after the call.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    pub(super) hunt: &'static Hunt,
    pub(super) choice: Option<Choice>,
}

impl Chosen {
    /// The call has returned. Waits if the choice is a wait after the call, and answers whether it
    /// waited.
    pub(super) fn after(&self, progress: impl Fn() -> bool) -> bool {
        let waits = self.choice == Some(Choice::After);
        if waits {
            self.hunt.wait(progress);
        }
        waits
    }
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

    fn new(schedule: Schedule, log: Option<File>) -> Hunt {
        let mut head = [0; WORDS.len()];
        let asked = |log: &File| log.read_at(&mut head, 0).is_ok() && head == *WORDS.as_bytes();
        let words = schedule.is_empty() || log.as_ref().is_some_and(asked);
        Hunt {
            schedule: Ranked::new(Arc::new(schedule)),
            log,
            words,
            part: None,
            points: Ranked::default(),
            beats: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            interrupts: AtomicU64::new(0),
            cqs: Ranked::default(),
            ledgers: Ranked::default(),
            late: Ranked::default(),
            refused: Ranked::default(),
            thread_of: Ranked::default(),
        }
    }

    /// Writes each line with a single write, so that lines of several processes do not mix.
    fn say(&self, line: &str) {
        if let Some(mut log) = self.log.as_ref() {
            let _ = log.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// The program makes a call at `address` on an object. Answers the choice.
    pub(super) fn at(&self, call: Call, address: usize, object: u64) -> Option<Choice> {
        let schedule = self.schedule.lock().clone();
        let before = self.part.as_ref().and_then(|part| part.lock().before).unwrap_or_default();
        let object = object.saturating_sub(before);
        let mut points = self.points.lock();
        let (site, count) = points.entry((call, address, object)).or_insert_with(|| {
            let place =
                NAMERS.get().map_or_else(|| format!("{address:#x}"), |(place, _)| place(address));
            let site = Site { call, place };
            match NAMERS.get().filter(|_| self.words) {
                Some((_, words)) => self.say(&format!("site {site} {object} {}", words(address))),
                None => self.say(&format!("site {site} {object}")),
            }
            if let Some(part) = &self.part {
                part.lock().met.push((site.clone(), object));
            }
            (site, 0)
        });
        *count += 1;
        if *count > 1 && count.is_power_of_two() {
            self.say(&format!("count {site} {}", count.ilog2()));
        }
        let point = Point { site: site.clone(), object, count: *count };
        drop(points);
        let choice = schedule.choice(&point)?;
        let entry = ChoiceEntry::at(point, choice);
        self.say(&format!("made {entry}"));
        if let Some(part) = &self.part {
            part.lock().made.push(entry);
        }
        Some(choice)
    }

    /// The program is about to make a call. Makes the choice, and waits if the choice is a wait
    /// before the call.
    pub(super) fn before(
        &'static self,
        (call, address, object): (Call, usize, u64),
        progress: impl Fn() -> bool,
    ) -> Chosen {
        let choice = self.at(call, address, object);
        if choice == Some(Choice::Before) {
            self.wait(progress);
        }
        Chosen { hunt: self, choice }
    }

    pub(super) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all packets on their way have come.
    pub(super) fn wait(&self, progress: impl Fn() -> bool) {
        let begun = Instant::now();
        let (mut seen, mut since) = (self.beats.load(Ordering::Relaxed), begun);
        with_looker(Looker::restart);
        while begun.elapsed() < LONGEST_CALL
            && self.waited.load(Ordering::Relaxed) < ALL_CALLS.as_nanos() as u64
        {
            progress();
            let now = self.beats.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
                with_looker(Looker::restart);
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
    fn is_at_rest(&self, enough: Duration) -> bool {
        let log = self.log.as_ref();
        log.is_some_and(|log| with_looker(|looker| looker.is_quiet(log, enough)))
    }

    /// Makes sure that the thread which releases withheld completions runs. The child of a fork
    /// gets its own thread.
    pub(super) fn see_to_thread(&'static self) {
        let mut of = self.thread_of.lock();
        if *of == std::process::id() {
            return;
        }
        *of = std::process::id();
        self.say(&format!("{PROCESS} {of}"));
        // The program's signal handlers must run on the program's own threads.
        let mut old = SigSet::empty();
        let blocked =
            pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut old));
        let spawned = std::thread::Builder::new().name("adverb-hunt".into()).spawn(|| self.run());
        if blocked.is_ok() {
            let _ = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&old), None);
        }
        if let Err(e) = spawned {
            log::error!("no completion is held, as no thread can be started: {e}");
            *of = 0;
        }
    }

    fn run(&self) {
        let (mut said, mut ticks, mut seen) = (u64::MAX, 0, u64::MAX);
        loop {
            std::thread::sleep(TICK);
            let cqs: Vec<_> = self.cqs.lock().iter().filter_map(Weak::upgrade).collect();
            let beats = self.beats.load(Ordering::Relaxed);
            let holds = cqs.iter().any(|cq| cq.withholds());
            if beats != seen || !holds {
                with_looker(Looker::restart);
                seen = beats;
            }
            let is_first = self.holds.load(Ordering::Relaxed) <= FIRST_HOLDS;
            let enough = if is_first { FIRST_HOLD_TIME } else { HOLD_TIME };
            let why = if holds && self.is_at_rest(enough) { Why::Rest } else { Why::Time };
            cqs.iter().for_each(|cq| cq.let_go(why));
            self.end_lateness();
            ticks += 1;
            if ticks % TICKS_A_BEAT == 0 && beats != said {
                said = beats;
                self.say(&format!("beat {} {beats}", std::process::id()));
            } else if ticks % TICKS_A_BEAT == 0
                && Node::existing().is_some_and(|node| node.waits_for_timers())
            {
                self.say(&format!("timer {}", std::process::id()));
            }
        }
    }
}

fn read(asked: &str) -> Result<Schedule, String> {
    if asked.trim().parse::<u64>().is_ok() {
        return asked.parse().map_err(|e| format!("{e}"));
    }
    let text = std::fs::read_to_string(asked).map_err(|e| format!("{asked}: {e}"))?;
    text.parse().map_err(|e| format!("{asked}: {e}"))
}

/// Posts that were refused because the send queue was full. A program that was refused twice at a
/// place, without a completion in between, retries by itself. There a post may be refused although
/// the queue has room, as for lack of another resource. A program that waits for a completion
/// first, or counts its requests, meets only queues that are really full.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Polled completions of send queues.
    pub(super) polled: u64,
    /// By place: how many completions were polled at the last refusal, and whether the program
    /// retries.
    places: HashMap<usize, (u64, bool)>,
    made: u64,
}

impl Refused {
    /// A post at `address` was refused because the queue was full.
    pub(super) fn note(&mut self, address: usize) {
        let (polled, again) = self.places.entry(address).or_insert((u64::MAX, false));
        *again |= *polled == self.polled;
        *polled = self.polled;
    }

    /// Does the hunt refuse a post although there is room?
    pub(super) fn again(&mut self, address: usize) -> bool {
        let refuses =
            self.made < REFUSALS && self.places.get(&address).is_some_and(|(_, again)| *again);
        self.made += u64::from(refuses);
        refuses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HUN-10: a post at a place with a retry and no completion in between is refused although
    /// there is room, up to `REFUSALS` times. No other place is refused, and none that waits for a
    /// completion.
    #[test]
    fn only_what_tries_again_is_refused_with_room() {
        let mut refused = Refused::default();
        assert!(!refused.again(1));
        refused.note(1);
        assert!(!refused.again(1), "it was refused once");
        refused.polled += 1;
        refused.note(1);
        assert!(!refused.again(1), "a completion was polled in between");
        refused.note(1);
        assert!(refused.again(1) && !refused.again(2));
        assert_eq!((0..100).filter(|_| refused.again(1)).count() as u64, REFUSALS - 1);
    }
}
