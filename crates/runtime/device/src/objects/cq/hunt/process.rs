//! What a process that is hunted shares: its schedule, what it has met, how long its calls have
//! waited.
use super::{Cq, Ledger, Why};
use crate::ranks;
use adverb_choice::{Call, Choice, Entry, Point, Schedule, Site};
use adverb_sync::Ranked;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::cell::Cell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The file of the schedule, or a seed.
pub const SCHEDULE: &str = "ADVERB_SCHEDULE";
/// The file that says what was met and chosen.
pub const LOG: &str = "ADVERB_SCHEDULE_LOG";

/// So many posts are refused that a queue had room for.
const REFUSALS: u64 = 32;
/// A call that waits for everything on its way waits until nothing has come for so long,
const QUIET: Duration = Duration::from_micros(1500);
/// and no longer than this,
const LONGEST_CALL: Duration = Duration::from_millis(12);
/// and all calls of a process together no longer than this: a right program always goes on.
const ALL_CALLS: Duration = Duration::from_secs(1);
/// Pace of the thread that lets held completions go, and of what it says of the program's progress.
const TICK: Duration = Duration::from_micros(500);
const TICKS_A_BEAT: u32 = 100;

type Namer = fn(usize) -> String;
/// How code is called in a schedule, and in words.
static NAMERS: OnceLock<(Namer, Namer)> = OnceLock::new();

/// How to say where an address of the program's code is: by file and offset, and in words. Set
/// once, by the face that knows.
pub fn set_namers(place: fn(usize) -> String, words: fn(usize) -> String) {
    let _ = NAMERS.set((place, words));
}

/// By kind of call, address and object: the place, and how often it was there.
type Points = HashMap<(Call, usize, u64), (Site, u64)>;

/// What a process that is hunted shares.
#[derive(Debug)]
pub struct Hunt {
    pub(super) schedule: Ranked<Arc<Schedule>, ranks::HuntSchedule>,
    log: Option<File>,
    /// Of queues made by [`part`] alone: what they met and chose, and the number of the first.
    pub(super) part: Option<Ranked<Part, ranks::HuntPart>>,
    points: Ranked<Points, ranks::HuntPoints>,
    /// Completions added and requests posted.
    pub(super) beats: AtomicU64,
    /// Nanoseconds that calls have waited.
    pub(super) waited: AtomicU64,
    /// Times that completions were held.
    pub(super) holds: AtomicU64,
    pub(super) cqs: Ranked<Vec<Weak<Cq>>, ranks::HuntQueues>,
    pub(super) ledgers: Ranked<HashMap<u32, Ledger>, ranks::HuntLedgers>,
    pub(super) refused: Ranked<Refused, ranks::HuntRefused>,
    /// The process whose thread lets completions go.
    thread_of: Ranked<u32, ranks::HuntThread>,
}

static HUNT: OnceLock<Option<Hunt>> = OnceLock::new();
/// The hunt of a part of this process.
static PART: OnceLock<Hunt> = OnceLock::new();

/// The hunt of this process, if it is hunted.
pub fn hunt() -> Option<&'static Hunt> {
    HUNT.get_or_init(Hunt::asked).as_ref()
}

/// The hunt of a queue that this thread makes.
pub(super) fn of_new_queue() -> Option<&'static Hunt> {
    if MAKES.get() { PART.get() } else { hunt() }
}

/// Has the queues of this process choose by a schedule, whatever the variables say; queues that
/// were made before do not.
///
/// # Errors
/// The schedule, if one was chosen, or looked for, already.
pub fn set(schedule: Schedule) -> Result<(), Schedule> {
    let hunt = Hunt::new(schedule, None);
    HUNT.set(Some(hunt)).map_err(|hunt| hunt.map(|h| h.schedule.lock().as_ref().clone()).unwrap_or_default())
}

thread_local! {
    /// This thread makes queues that are hunted.
    static MAKES: Cell<bool> = const { Cell::new(false) };
}

/// What the hunted part of a process has met and chosen.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Places with the objects that they were met on, in this order.
    pub met: Vec<(Site, u64)>,
    /// What was chosen, in this order.
    pub made: Vec<Entry>,
    /// The number of the queue that was made before its first.
    pub(super) before: Option<u64>,
}

/// Hunts a part of this process, the queues that `make` makes, by a schedule, and forgets what was
/// met before. One part at a time: the caller sees to that.
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
    if let Some(part) = &hunt.part {
        *part.lock() = Part::default();
    }
    MAKES.set(true);
    let made = make();
    MAKES.set(false);
    Ok(made)
}

/// Queues that this thread makes from now on belong to the hunted part.
pub fn join_part() {
    MAKES.set(true);
}

/// What the hunted part has met and chosen so far, and the number of completions and posts.
#[must_use]
pub fn part_so_far() -> (Part, u64) {
    let of = |h: &Hunt| Some((h.part.as_ref()?.lock().clone(), h.beats.load(Ordering::Relaxed)));
    PART.get().and_then(of).unwrap_or_default()
}

/// The whole process is hunted, so no part of it can be.
#[derive(Clone, Copy, Debug)]
pub struct AlreadyHunted;

/// What was chosen at a call, for when the call has returned.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    pub(super) hunt: &'static Hunt,
    pub(super) choice: Option<Choice>,
}

impl Chosen {
    /// The call has returned. Waits, if the wait is after the call, and answers whether it is.
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
        let asked = adverb_os::chosen(SCHEDULE).and_then(|v| v.into_string().ok()).filter(|v| !v.is_empty());
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
        let log = log.and_then(|path| File::options().append(true).create(true).open(path).ok());
        Some(Hunt::new(schedule, log))
    }

    fn new(schedule: Schedule, log: Option<File>) -> Hunt {
        Hunt {
            schedule: Ranked::new(Arc::new(schedule)),
            log,
            part: None,
            points: Ranked::default(),
            beats: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            cqs: Ranked::default(),
            ledgers: Ranked::default(),
            refused: Ranked::default(),
            thread_of: Ranked::default(),
        }
    }

    /// One write a line, so that those of several processes do not mix.
    fn say(&self, line: &str) {
        if let Some(mut log) = self.log.as_ref() {
            let _ = log.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// The program makes a call at `address` on an object: what is chosen.
    pub(super) fn at(&self, call: Call, address: usize, object: u64) -> Option<Choice> {
        let schedule = self.schedule.lock().clone();
        let before = self.part.as_ref().and_then(|part| part.lock().before).unwrap_or_default();
        let object = object.saturating_sub(before);
        let mut points = self.points.lock();
        let (site, count) = points.entry((call, address, object)).or_insert_with(|| {
            let place = NAMERS.get().map_or_else(|| format!("{address:#x}"), |(place, _)| place(address));
            let site = Site { call, place };
            // Words cost a look into the program's file: they are asked for in a run in which
            // nothing is chosen.
            match NAMERS.get().filter(|_| schedule.is_empty()) {
                Some((_, words)) => self.say(&format!("site {site} {object} {}", words(address))),
                None => self.say(&format!("site {site} {object}")),
            }
            if let Some(part) = &self.part {
                part.lock().met.push((site.clone(), object));
            }
            (site, 0)
        });
        *count += 1;
        let point = Point { site: site.clone(), object, count: *count };
        drop(points);
        let choice = schedule.choice(&point)?;
        let entry = Entry::at(point, choice);
        self.say(&format!("made {entry}"));
        if let Some(part) = &self.part {
            part.lock().made.push(entry);
        }
        Some(choice)
    }

    /// The program is about to make a call: what is chosen. Waits, if the wait is before the call.
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

    /// Waits until everything on its way has come.
    pub(super) fn wait(&self, progress: impl Fn() -> bool) {
        let begun = Instant::now();
        let (mut seen, mut since) = (self.beats.load(Ordering::Relaxed), begun);
        while begun.elapsed() < LONGEST_CALL
            && self.waited.load(Ordering::Relaxed) < ALL_CALLS.as_nanos() as u64
        {
            progress();
            let now = self.beats.load(Ordering::Relaxed);
            if now != seen {
                (seen, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET {
                break;
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        self.waited.fetch_add(begun.elapsed().as_nanos() as u64, Ordering::Relaxed);
    }

    /// Sees to the thread that lets held completions go; the child of a fork has one of its own.
    pub(super) fn see_to_thread(&'static self) {
        let mut of = self.thread_of.lock();
        if *of == std::process::id() {
            return;
        }
        *of = std::process::id();
        // The program's signal handlers run on its own threads.
        let mut old = SigSet::empty();
        let blocked = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut old));
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
        let (mut said, mut ticks) = (u64::MAX, 0);
        loop {
            std::thread::sleep(TICK);
            let cqs: Vec<_> = self.cqs.lock().iter().filter_map(Weak::upgrade).collect();
            cqs.iter().for_each(|cq| cq.let_go(Why::Time));
            ticks += 1;
            let beats = self.beats.load(Ordering::Relaxed);
            if ticks % TICKS_A_BEAT == 0 && beats != said {
                said = beats;
                self.say(&format!("beat {} {beats}", std::process::id()));
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

/// Posts that were refused because the send queue was full. A program that has been refused twice
/// at a place without a completion in between tries again by itself: there a post may be refused
/// though the queue has room, as for want of another resource. One that waits for a completion
/// first, or counts its requests, meets nothing but queues that are full.
#[derive(Debug, Default)]
pub(super) struct Refused {
    /// Completions of send queues that were polled.
    pub(super) polled: u64,
    /// By place: how many were polled when it was refused last, and whether it tries again.
    places: HashMap<usize, (u64, bool)>,
    made: u64,
}

impl Refused {
    /// A post at `address` was refused, as the queue was full.
    pub(super) fn note(&mut self, address: usize) {
        let (polled, again) = self.places.entry(address).or_insert((u64::MAX, false));
        *again |= *polled == self.polled;
        *polled = self.polled;
    }

    /// Is one refused although there is room?
    pub(super) fn again(&mut self, address: usize) -> bool {
        let refuses = self.made < REFUSALS && self.places.get(&address).is_some_and(|(_, again)| *again);
        self.made += u64::from(refuses);
        refuses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HUN-10: a place that comes again without a completion in between is refused though there is
    /// room, so many times; no other place is, and none that waits for a completion.
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
