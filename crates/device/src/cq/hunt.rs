//! The device as an adversary: what is chosen, within what the rules allow, at calls of the
//! program.
//!
//! A program that is hunted (`adverb hunt`, `adverb run --replay`) has a schedule, which says at
//! which points something is chosen. All choices are moments at which a completion becomes visible:
//! a call may take long, as of a thread that loses the processor; a completion may come late, as
//! over a slow network, but in order, and no later than `LONGEST`; a send queue may count its
//! places as NICs do, which free them when a completion is polled. A held completion has not been
//! added to its queue yet, so arms and events see it when it is (CQN-3, CQN-7). Without a schedule
//! a queue has no `Hunted`, and that is all there is to pay.
use super::{CompChannel, Cq};
use crate::node::Node;
use crate::qp::Qp;
use adverb_choice::{Call, Choice, Entry, Point, Schedule, Site, mix};
use adverb_engine::{Cause, Completion, PostError, WcOpcode};
use adverb_sync::Mutex;
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// The file of the schedule, or a seed.
pub const SCHEDULE: &str = "ADVERB_SCHEDULE";
/// The file that says what was met and chosen.
pub const LOG: &str = "ADVERB_SCHEDULE_LOG";

/// A completion is held no longer than this.
const LONGEST: Duration = Duration::from_millis(20);
/// So long after an arm the program counts as asleep.
const ASLEEP: Duration = Duration::from_micros(500);
/// A call that waits for everything on its way waits until nothing has come for so long,
const QUIET: Duration = Duration::from_micros(1500);
/// and no longer than this,
const LONGEST_CALL: Duration = Duration::from_millis(12);
/// and all calls of a process together no longer than this: a right program always goes on.
const ALL_CALLS: Duration = Duration::from_secs(2);
/// So many times the completions of a process are held.
const HOLDS: u64 = 100;
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
    schedule: Schedule,
    log: Option<File>,
    points: Mutex<Points>,
    /// Completions added and requests posted.
    beats: AtomicU64,
    /// Nanoseconds that calls have waited.
    waited: AtomicU64,
    /// Times that completions were held.
    holds: AtomicU64,
    cqs: Mutex<Vec<Weak<Cq>>>,
    ledgers: Mutex<HashMap<u32, Ledger>>,
    /// The process whose thread lets completions go.
    thread_of: Mutex<u32>,
}

static HUNT: OnceLock<Option<Hunt>> = OnceLock::new();

/// The hunt of this process, if it is hunted.
pub fn hunt() -> Option<&'static Hunt> {
    HUNT.get_or_init(Hunt::asked).as_ref()
}

/// Has the queues of this process choose by a schedule, whatever the variables say; queues that
/// were made before do not.
///
/// # Errors
/// The schedule, if one was chosen, or looked for, already.
pub fn set(schedule: Schedule) -> Result<(), Schedule> {
    let hunt = Hunt::new(schedule, None);
    HUNT.set(Some(hunt)).map_err(|hunt| hunt.map(|h| h.schedule).unwrap_or_default())
}

impl Hunt {
    fn asked() -> Option<Hunt> {
        let asked =
            adverb_link::chosen(SCHEDULE).and_then(|v| v.into_string().ok()).filter(|v| !v.is_empty());
        let log = adverb_link::chosen(LOG).filter(|v| !v.is_empty());
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
            schedule,
            log,
            points: Mutex::default(),
            beats: AtomicU64::new(0),
            waited: AtomicU64::new(0),
            holds: AtomicU64::new(0),
            cqs: Mutex::default(),
            ledgers: Mutex::default(),
            thread_of: Mutex::default(),
        }
    }

    /// One write a line, so that those of several processes do not mix.
    fn say(&self, line: &str) {
        if let Some(mut log) = self.log.as_ref() {
            let _ = log.write_all(format!("{line}\n").as_bytes());
        }
    }

    /// The program makes a call at `address` on an object: what is chosen.
    fn at(&self, call: Call, address: usize, object: u64) -> Option<Choice> {
        let mut points = self.points.lock();
        let (site, count) = points.entry((call, address, object)).or_insert_with(|| {
            let place = NAMERS.get().map_or_else(|| format!("{address:#x}"), |(place, _)| place(address));
            let site = Site { call, place };
            // Words cost a look into the program's file: they are asked for in a run in which
            // nothing is chosen.
            match NAMERS.get().filter(|_| self.schedule.is_empty()) {
                Some((_, words)) => self.say(&format!("site {site} {object} {}", words(address))),
                None => self.say(&format!("site {site} {object}")),
            }
            (site, 0)
        });
        *count += 1;
        let point = Point { site: site.clone(), object, count: *count };
        drop(points);
        let choice = self.schedule.choice(&point)?;
        self.say(&format!("made {}", Entry::at(point, choice)));
        Some(choice)
    }

    fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until everything on its way has come.
    fn wait(&self, node: &Node) {
        let begun = Instant::now();
        let (mut seen, mut since) = (self.beats.load(Ordering::Relaxed), begun);
        while begun.elapsed() < LONGEST_CALL
            && self.waited.load(Ordering::Relaxed) < ALL_CALLS.as_nanos() as u64
        {
            node.progress();
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
    fn see_to_thread(&'static self) {
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

/// A completion queue of a process that is hunted.
#[derive(Debug)]
pub(super) struct Hunted {
    hunt: &'static Hunt,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    way: Way,
    list: VecDeque<Completion>,
    /// When the first of them came.
    since: Option<Instant>,
    /// When the queue was armed after that.
    armed: Option<Instant>,
    /// The last poll found nothing.
    drained: bool,
}

/// How completions become visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    AtOnce,
    Together,
    OneByOne,
}

/// Why held completions are let go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    /// The thread comes by: those whose time has come.
    Time,
    /// A poll found nothing visible.
    Poll,
    /// All of them, now.
    Now,
}

impl Hunted {
    /// Of a new queue, if the process is hunted.
    pub(super) fn new() -> Option<Box<Hunted>> {
        hunt().map(|hunt| Box::new(Hunted { hunt, held: Mutex::default() }))
    }

    /// What comes from now on is held.
    fn holds(&self, way: Way) {
        if self.hunt.holds.fetch_add(1, Ordering::Relaxed) < HOLDS {
            self.held.lock().way = way;
        }
    }
}

impl Cq {
    /// The queue was made.
    pub(super) fn enter_hunt(self: &Arc<Self>) {
        if let Some(h) = &self.hunted {
            let mut cqs = h.hunt.cqs.lock();
            cqs.retain(|cq| cq.strong_count() > 0);
            cqs.push(Arc::downgrade(self));
            drop(cqs);
            h.hunt.see_to_thread();
        }
    }

    /// Keeps a completion back, or gives it back to be added now.
    pub(super) fn hold(self: &Arc<Self>, completion: Completion) -> Option<Completion> {
        let Some(h) = &self.hunted else { return Some(completion) };
        h.hunt.beat();
        let mut held = h.held.lock();
        if held.way == Way::AtOnce && held.list.is_empty() {
            return Some(completion);
        }
        if held.list.is_empty() {
            held.since = Some(Instant::now());
        }
        held.list.push_back(completion);
        // A queue that is too small for what may complete shows it.
        if held.list.len() + self.core.waiting() > self.core.capacity() as usize {
            drop(held);
            self.let_go(Why::Now);
        }
        None
    }

    /// Adds held completions whose time has come.
    fn let_go(self: &Arc<Self>, why: Why) {
        let Some(h) = &self.hunted else { return };
        let mut held = h.held.lock();
        let since = held.since.is_some_and(|at| at.elapsed() >= LONGEST);
        let slept = held.armed.is_some_and(|at| at.elapsed() >= ASLEEP);
        let all = held.list.len();
        let n = match (why, held.way) {
            (Why::Now, _) => all,
            (Why::Time, _) if since => all,
            (Why::Time, Way::OneByOne) if slept => 1,
            (Why::Time, _) if slept => all,
            (Why::Poll, Way::OneByOne) if self.core.waiting() == 0 => 1,
            _ => 0,
        };
        // Under the lock, so that they stay in order.
        for completion in held.list.drain(..n.min(all)).collect::<Vec<_>>() {
            let _ = self.add(completion, || self.context.node().now());
        }
        if n > 0 && held.list.is_empty() {
            (held.way, held.since, held.armed) = (Way::AtOnce, None, None);
        }
    }

    /// The queue is being armed at `address`; called before and after it is.
    pub fn hunt_arm(self: &Arc<Self>, address: usize, arm: impl FnOnce() -> i32) -> i32 {
        let Some(h) = &self.hunted else { return arm() };
        let choice = h.hunt.at(Call::Arm, address, self.number.into());
        if choice == Some(Choice::Before) {
            h.hunt.wait(self.context.node());
            self.let_go(Why::Now);
        }
        let result = arm();
        if choice == Some(Choice::After) {
            h.hunt.wait(self.context.node());
            self.let_go(Why::Now);
        } else {
            h.held.lock().armed = Some(Instant::now());
        }
        result
    }

    /// Takes what is visible.
    pub(super) fn poll_hunted(
        self: &Arc<Self>,
        max: usize,
        mut take: impl FnMut(Completion),
    ) -> Result<usize, Cause> {
        self.let_go(Why::Poll);
        self.core.poll(max, |c| {
            self.hunt_polled(&c);
            take(c);
        })
    }

    /// The program polled a completion: places of a send queue are free.
    fn hunt_polled(&self, c: &Completion) {
        if let Some(h) = &self.hunted
            && (c.opcode as u32) < WcOpcode::Recv as u32
            && let Some(ledger) = h.hunt.ledgers.lock().get_mut(&c.qpn)
        {
            ledger.polled(c.wr_id);
        }
    }

    /// A poll at `address` found so many.
    pub fn hunt_found(self: &Arc<Self>, address: usize, found: usize) {
        let Some(h) = &self.hunted else { return };
        let mut held = h.held.lock();
        if found > 0 || held.drained {
            held.drained = found == 0;
            if found > 0 {
                held.armed = None;
            }
            return;
        }
        held.drained = true;
        drop(held);
        match h.hunt.at(Call::Poll, address, self.number.into()) {
            Some(Choice::After) => h.hunt.wait(self.context.node()),
            Some(Choice::Hold) => h.holds(Way::Together),
            Some(Choice::Drip) => h.holds(Way::OneByOne),
            _ => {}
        }
    }

    /// A poll at `address` found a failed completion: what its undefined fields are to be filled
    /// with.
    pub fn hunt_failed(&self, address: usize) -> Option<u64> {
        let h = self.hunted.as_ref()?;
        let choice = h.hunt.at(Call::Error, address, self.number.into())?;
        (choice == Choice::Garbage).then(|| mix(h.hunt.schedule.seed ^ h.hunt.beats.load(Ordering::Relaxed)))
    }

    /// The completions of a queue pair go.
    pub(super) fn hunt_purge(&self, qpn: u32) {
        if let Some(h) = &self.hunted {
            h.held.lock().list.retain(|c| c.qpn != qpn);
            h.hunt.ledgers.lock().remove(&qpn);
        }
    }
}

impl CompChannel {
    /// The program gets an event at `address`.
    pub fn hunt_event<R>(&self, address: usize, get: impl FnOnce() -> R) -> R {
        let Some(hunt) = hunt() else { return get() };
        let first = self.cqs.lock().first().and_then(Weak::upgrade).map_or(0, |cq| cq.number);
        let choice = hunt.at(Call::Event, address, first.into());
        if choice == Some(Choice::Before) {
            hunt.wait(self.context.node());
        }
        let event = get();
        if choice == Some(Choice::After) {
            hunt.wait(self.context.node());
        }
        event
    }
}

/// Requests of a send queue whose places are taken as on a NIC: until a completion of theirs, or of
/// a later one, was polled.
#[derive(Debug, Default)]
struct Ledger {
    requests: VecDeque<u64>,
    staged: usize,
    strict: bool,
}

impl Ledger {
    fn polled(&mut self, wr_id: u64) {
        let known = self.requests.len() - self.staged;
        if let Some(at) = self.requests.iter().take(known).position(|w| *w == wr_id) {
            self.requests.drain(..=at);
        }
    }
}

impl Qp {
    /// The program posts at `address`.
    pub fn hunt_post(&self, address: usize, post: impl FnOnce() -> i32) -> i32 {
        let Some((hunt, cq)) = hunt().zip(self.send_cq.as_ref()) else { return post() };
        let choice = hunt.at(Call::Post, address, cq.number.into());
        if choice == Some(Choice::Full) {
            hunt.ledgers.lock().entry(self.number()).or_default().strict = true;
        }
        let result = post();
        if result == 0 {
            hunt.beat();
        }
        if choice == Some(Choice::After) {
            hunt.wait(cq.context.node());
        }
        result
    }

    /// A request is about to be staged. Refused if the queue is full as a NIC counts it: when the
    /// schedule says so, and as long as completions of it are held.
    pub(crate) fn hunt_stage(&self, engine: &adverb_engine::Qp) -> Result<(), PostError> {
        let Some((h, cq)) = self.send_cq.as_ref().and_then(|cq| Some((cq.hunted.as_ref()?, cq))) else {
            return Ok(());
        };
        let (staged, depth) = (engine.staged_sends(), engine.config().cap.max_send_wr);
        let holds = !h.held.lock().list.is_empty();
        let mut ledgers = h.hunt.ledgers.lock();
        let ledger = ledgers.entry(self.number()).or_default();
        // What was staged and is so no more was forgotten.
        let forgotten = ledger.staged.saturating_sub(staged);
        let kept = ledger.requests.len() - forgotten;
        ledger.requests.truncate(kept);
        ledger.staged -= forgotten;
        if ledger.requests.len() >= depth as usize && (holds || ledger.strict) {
            log::debug!("CQ {}: the send queue is full until its completions are polled", cq.number);
            return Err(PostError::QueueFull(Cause::QueueFull { queue: "the send queue", depth }));
        }
        Ok(())
    }

    /// A request was staged.
    pub(crate) fn hunt_staged(&self, wr_id: u64) {
        if let Some(h) = self.send_cq.as_ref().and_then(|cq| cq.hunted.as_ref()) {
            let mut ledgers = h.hunt.ledgers.lock();
            let ledger = ledgers.entry(self.number()).or_default();
            ledger.requests.push_back(wr_id);
            ledger.staged += 1;
        }
    }

    /// What was staged was handed over.
    pub(crate) fn hunt_committed(&self) {
        if let Some(h) = self.send_cq.as_ref().and_then(|cq| cq.hunted.as_ref())
            && let Some(ledger) = h.hunt.ledgers.lock().get_mut(&self.number())
        {
            ledger.staged = 0;
        }
    }
}
