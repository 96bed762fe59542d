//! Search, in one process, for a schedule of completions at which a test fails.
use super::{Endpoint, pair};
use crate::cq::CompChannel;
use crate::error::{Error, Result};
use crate::sites;
use adverb_choice::{Call, ChoiceEntry, Plan, Schedule, Site, Which};
use adverb_hunt::{self as hunt, HuntedPart};
use adverb_sync::Mutex;
use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a test is hunted at most, by default.
const TIME: Duration = Duration::from_secs(5);
/// In how many runs a test is hunted at most, by default.
const RUNS: usize = 400;
/// How often the device replays a schedule that failed.
const REPLAYS: usize = 5;
/// How often a run is checked for progress.
const LOOK: Duration = Duration::from_millis(20);
/// A run hangs if nothing is posted or completed for 1 s plus four times the longest silence of the
/// first run.
const SILENCE: Duration = Duration::from_secs(1);
/// The silence and the run time that the first run may have: nothing is known of the test yet.
/// A later run may take this time plus ten times the first run's time.
const FIRST: Duration = Duration::from_secs(30);
/// How many choices the text of a [`Found`] shows.
const SHOWN: usize = 4;

/// A process hunts one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What a hunted test works with: two connected ends, made anew for each run.
#[derive(Debug)]
pub struct World {
    /// The first end.
    pub a: Endpoint,
    /// The second end.
    pub b: Endpoint,
}

/// Runs a test again and again, each time with two new ends. In each run the device chooses when
/// completions become visible, within the rules of verbs. They may become visible just before an
/// arm, between the arm and the next poll, all at once, one for each poll, or late. The device also
/// chooses when the send queue is full. A correct test passes all runs. `adverb hunt` does the same
/// with whole programs; docs/hunt.md lists the choices.
///
/// ```
/// use adverb::testing::hunt;
/// use adverb::{Notify, Result};
///
/// hunt(|world| -> Result<()> {
///     let inbox = world.b.buffer(64)?;
///     world.b.qp.recv(&inbox).post()?;
///     world.b.cq.notify(Notify::Next)?;
///     world.a.qp.send("hello").post()?;
///     // Armed first, polled afterwards: no wake-up is lost.
///     while world.b.cq.poll_one()?.is_none() {
///         drop(world.b.channel.next_event()?);
///         world.b.cq.notify(Notify::Next)?;
///     }
///     Ok(())
/// });
/// ```
///
/// # Panics
/// If a run fails. The panic message says what happened and how to replay the run. [`Hunt::run`]
/// returns the failure instead.
pub fn hunt(test: impl Fn(&World) -> Result<()> + Send + Sync + 'static) {
    if let Err(found) = Hunt::new().run(test) {
        panic!("{found}");
    }
}

/// The settings of a hunt. A hunt lasts 5 seconds or 400 runs by default, whichever ends first.
#[derive(Clone, Debug)]
pub struct Hunt {
    time: Duration,
    runs: usize,
    seed: u64,
    only: Option<Schedule>,
}

/// What a test has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survived {
    /// The number of runs.
    pub runs: usize,
    /// The number of places in the test at which the device could choose.
    pub places: usize,
}

/// How a test fails.
#[derive(Clone, Debug)]
pub struct Found {
    /// What happened: the error, the panic message, or why the test is taken to hang.
    pub what: String,
    /// The number of the run.
    pub run: usize,
    /// How often the replays failed again.
    pub again: Again,
    /// The choices as text for [`Hunt::replay`]. If it has no choices, the test fails by itself.
    pub schedule: String,
    /// The choices in words, each with the place in the test.
    pub chosen: Vec<String>,
}

/// How many replays failed, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The number of replays that failed.
    pub failed: usize,
    /// The number of replays.
    pub of: usize,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "hunt: found in run {}: {}", self.run, self.what)?;
        for line in self.chosen.iter().take(SHOWN) {
            writeln!(f, "  {line}")?;
        }
        if self.chosen.len() > SHOWN {
            writeln!(f, "  and {} more choices", self.chosen.len() - SHOWN)?;
        }
        if self.chosen.is_empty() {
            writeln!(f, "  without any choice: the test fails by itself")?;
        }
        writeln!(f, "  again:  in {} of {} runs", self.again.failed, self.again.of)?;
        write!(f, "  replay: Hunt::new().replay({:?}).run(..)", self.schedule)
    }
}

impl std::error::Error for Found {}

/// The result of one run.
struct Run {
    failure: Option<String>,
    part: HuntedPart,
    took: Duration,
    /// The longest time without a completion or a post.
    silence: Duration,
}

impl Default for Hunt {
    fn default() -> Self {
        Hunt { time: TIME, runs: RUNS, seed: 1, only: None }
    }
}

impl Hunt {
    /// A hunt with the default settings.
    #[must_use]
    pub fn new() -> Self {
        Hunt::default()
    }

    /// Sets how long the hunt lasts at most.
    #[must_use]
    pub fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Sets how many runs the hunt has at most.
    #[must_use]
    pub fn runs(mut self, runs: usize) -> Self {
        self.runs = runs;
        self
    }

    /// Sets the seed of random schedules (1).
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs only the schedule of an earlier report.
    ///
    /// # Panics
    /// If the text is not a schedule.
    #[must_use]
    pub fn replay(mut self, schedule: &str) -> Self {
        self.only = Some(schedule.parse().unwrap_or_else(|e| panic!("{e}")));
        self
    }

    /// Hunts the test. The test must end by itself; if it hangs, its thread stays behind. The
    /// device also chooses for queues that the test makes on the thread that calls it, as for the
    /// queues of the [`World`].
    ///
    /// # Errors
    /// How the test fails, with as few choices as the search finds.
    ///
    /// # Panics
    /// In a process that `adverb hunt` hunts as a whole.
    pub fn run(
        self,
        test: impl Fn(&World) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Survived, Box<Found>> {
        let _alone = ALONE.lock();
        sites::begin();
        let (begun, test) = (Instant::now(), Arc::new(test));
        let nothing = Schedule::default();
        let first = attempt(&nothing, &test, FIRST, FIRST);
        let places: BTreeSet<_> = first.part.met.iter().map(|(site, _)| &site.place).collect();
        let places = places.len();
        let (silence, whole) = (first.silence * 4 + SILENCE, first.took * 10 + FIRST);
        let mut run = |schedule: &Schedule| attempt(schedule, &test, silence, whole);
        let mut replayed = |schedule: &Schedule, failed: Run, nth: usize| {
            let schedule = shrink(schedule, &failed.part.made, &mut run);
            let again: Vec<_> = (0..REPLAYS).filter_map(|_| run(&schedule).failure).collect();
            let what = again.last().cloned().or(failed.failure).unwrap_or_default();
            Box::new(Found {
                what,
                run: nth,
                again: Again { failed: again.len(), of: REPLAYS },
                chosen: in_words(&schedule, &failed.part.made),
                schedule: schedule.to_string(),
            })
        };
        if first.failure.is_some() {
            return Err(replayed(&nothing, first, 1));
        }
        // A test that counts on messages of UC and UD is right.
        let survives = |site: &&Site| !site.call.choices().iter().any(|choice| choice.may_end());
        let met = first.part.met.iter().map(|(site, object)| (site, *object));
        let met: Vec<_> = met.filter(|(site, _)| survives(site)).collect();
        let mut plan = Plan::new(&met, self.seed);
        let mut runs = 1;
        while runs < self.runs && begun.elapsed() < self.time && !met.is_empty() {
            let schedule = self.only.clone().unwrap_or_else(|| plan.next_schedule());
            runs += 1;
            let run = attempt(&schedule, &test, silence, whole);
            if run.failure.is_some() {
                return Err(replayed(&schedule, run, runs));
            }
            if self.only.is_some() && runs > REPLAYS {
                break;
            }
        }
        Ok(Survived { runs, places })
    }
}

/// Runs the test once, with a schedule.
fn attempt<T>(schedule: &Schedule, test: &Arc<T>, silence: Duration, whole: Duration) -> Run
where
    T: Fn(&World) -> Result<()> + Send + Sync + 'static,
{
    let begun = Instant::now();
    let world = hunt::part(schedule.clone(), pair);
    let world = world.unwrap_or_else(|_| panic!("this process is hunted as a whole"));
    let ended = |failure, longest| {
        let (part, _) = hunt::part_so_far();
        Run { failure, part, took: begun.elapsed(), silence: longest }
    };
    let (a, b) = match world {
        Ok(ends) => ends,
        Err(e) => return ended(Some(e.to_string()), Duration::ZERO),
    };
    let channels = [a.channel.clone(), b.channel.clone()];
    let (say, hear) = channel();
    let test = test.clone();
    let spawned = std::thread::Builder::new().name("hunted".into()).spawn(move || {
        hunt::join_part();
        let world = World { a, b };
        let result = catch_unwind(AssertUnwindSafe(|| test(&world)));
        drop(world);
        let _ = say.send(result);
    });
    let thread = match spawned {
        Ok(thread) => thread,
        Err(e) => return ended(Some(format!("no thread can be started: {e}")), Duration::ZERO),
    };
    let (mut looked, mut seen) = (Instant::now(), 0);
    let (mut silent, mut longest) = (Duration::ZERO, Duration::ZERO);
    loop {
        let result = hear.recv_timeout(LOOK);
        // If the whole machine stalls, this thread stalls as well. Such a pause is not the test's
        // silence.
        silent += looked.elapsed().min(LOOK * 2);
        looked = Instant::now();
        let (_, beats) = hunt::part_so_far();
        if beats != seen {
            (seen, silent) = (beats, Duration::ZERO);
        }
        longest = longest.max(silent);
        match result {
            Ok(result) => {
                let _ = thread.join();
                return ended(failure_of(result), longest);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return ended(Some("its thread has ended".into()), longest);
            }
            Err(RecvTimeoutError::Timeout) if silent > silence || begun.elapsed() > whole => {
                return ended(Some(hang(&channels, silent)), longest);
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

fn failure_of(result: std::thread::Result<Result<(), Error>>) -> Option<String> {
    match result {
        Ok(Ok(())) => None,
        Ok(Err(e)) => Some(format!("the test fails: {e}")),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words =
                words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of something");
            Some(format!("the test panics: {words}"))
        }
    }
}

/// Why a test hangs, in words.
fn hang(channels: &[CompChannel], silent: Duration) -> String {
    let lost: Vec<_> =
        channels.iter().flat_map(CompChannel::lost_wakeups).map(|o| o.report).collect();
    match lost.is_empty() {
        true => format!("the test hangs: nothing was posted or completed for {silent:.1?}"),
        false => format!("the test hangs: {}", lost.join("; ")),
    }
}

/// A shorter schedule that fails as well: no choice, the first one, the last one, or the choices
/// that were made. Without such a schedule, the given one.
fn shrink(
    schedule: &Schedule,
    made: &[ChoiceEntry],
    run: &mut impl FnMut(&Schedule) -> Run,
) -> Schedule {
    let (Some(first), Some(last)) = (made.first(), made.last()) else { return schedule.clone() };
    let candidates = [Vec::new(), vec![first.clone()], vec![last.clone()], made.to_vec()];
    let mut fails = |entries: Vec<ChoiceEntry>| {
        let schedule = Schedule::of(entries);
        run(&schedule).failure.is_some().then_some(schedule)
    };
    candidates.into_iter().find_map(&mut fails).unwrap_or_else(|| schedule.clone())
}

fn in_words(schedule: &Schedule, made: &[ChoiceEntry]) -> Vec<String> {
    let entries = match schedule.entries.is_empty() && !schedule.is_empty() {
        true => made,
        false => &schedule.entries,
    };
    let line = |ChoiceEntry { site: Site { call, place }, count, choice, .. }: &ChoiceEntry| {
        let time = match count {
            Which::Nth(n) => format!(" (time {n})"),
            Which::Any => String::new(),
        };
        format!("{place}{time}, {}: {}", name_of(*call), choice.words(*call))
    };
    entries.iter().map(line).collect()
}

fn name_of(call: Call) -> &'static str {
    match call {
        Call::Arm => "an arm",
        Call::Poll | Call::Error | Call::Message => "a poll",
        Call::Post | Call::Unreliable | Call::Shared => "a post",
        Call::Receive => "a receive",
        Call::Event | Call::Async | Call::Connection => "an event",
        Call::Acknowledge => "an acknowledgement",
        Call::Register => "a registration",
        Call::Modify => "a move to the error state",
    }
}
