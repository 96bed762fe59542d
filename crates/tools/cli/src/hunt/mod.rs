//! `adverb hunt`: searches for the moment at which a program fails.
mod attempt;
mod boxes;
mod commands;
mod files;
mod plain;
mod report;
mod shrink;
mod stuck;
#[cfg(test)]
mod tests;

pub use boxes::{BOX, BoxArgs, main as box_main};

use crate::out::{at, out};
use adverb_check::Told;
use adverb_choice::{Choice, Plan, Schedule, Site};
use attempt::{Attempt, Limits, Met, Verdict};
use commands::HuntCommands;
use shrink::{Confirmed, Rate};
use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Number of replays, which measure how often a failure happens.
const REPLAYS: usize = 5;
/// Largest number of replays of a failure that did not happen again.
const MOST_REPLAYS: usize = 20;
/// After so many failures that do not happen again, only one run runs at a time.
const MOST_ONCE: usize = 2;
/// Most reports kept of runs that did not fail.
const MOST_REPORTS: usize = 1000;
/// How long shrinking and replaying may take.
const CONFIRM: Duration = Duration::from_secs(30);
/// How long they may go on after the time of the hunt.
const LATER: Duration = Duration::from_secs(5);

/// Searches for moments at which a program fails, and shows how to replay them
///
/// Runs the program again and again. The device chooses when completions become visible, within
/// the rules of verbs: a right program survives every choice. A failure is shrunk to the fewest
/// choices and kept in a file.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  adverb hunt -- ./my_program\n  adverb hunt --time 10m --jobs \
                        4 -- sh -c './server & ./client; wait'\n  adverb hunt --pair -- ./server \
                        --port 7000 -- ./client --port 7000\n\nExit status: 0 if every \
                        single choice was tried and no failure was found, 1 if a failure was found, \
                        2 if a failure may be chance, 3 if the time was too short for every single \
                        choice, 4 if the program makes no call with a choice, 125 if adverb fails."
)]
pub struct Args {
    /// How long to search: 30s, 10m, 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = crate::duration::parse)]
    time: Duration,
    /// The number of runs at a time; without this option, the number of processors. If the program
    /// fails when several copies run, the hunt goes back to one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    jobs: Option<u16>,
    /// The first seed of random schedules
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// The file for the schedule of a found failure
    #[arg(long, value_name = "FILE", default_value = "adverb-hunt.schedule")]
    out: PathBuf,
    /// Hunt two commands as one, a server and its client, with `--` between them; the report names
    /// the failed command
    #[arg(long)]
    pair: bool,
    /// Write the result as a JUnit test report
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the result as SARIF, for code scanning
    #[arg(long, value_name = "FILE")]
    sarif: Option<PathBuf>,
    /// A file of unwanted reports of the check, as in `adverb run`: these reports are neither
    /// findings nor causes
    #[arg(long, value_name = "FILE")]
    check_suppress: Option<PathBuf>,
    /// A shell command that is run before each run's program, in the box of the run
    #[arg(long, value_name = "CMD")]
    before: Option<OsString>,
    /// The program, searched in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Args {
    /// The commands: a single command, or a server and its client.
    fn commands(&self) -> Vec<&[OsString]> {
        match self.command.iter().position(|word| word == "--").filter(|_| self.pair) {
            Some(at) => vec![&self.command[..at], &self.command[at + 1..]],
            None => vec![&self.command],
        }
    }
}

pub fn main(args: &Args) -> ExitCode {
    adverb_survivor::see_children();
    let directory = commands::directory();
    crate::guard(adverb_survivor::AtEnd { leave_running: false, remove: Some(directory.clone()) });
    adverb_survivor::note_interrupt();
    let begun = Instant::now();
    let end = hunt(args, directory, begun).and_then(|end| {
        files::write(args, &end, begun.elapsed())?;
        Ok(end)
    });
    match end {
        Ok(end) => ExitCode::from(end.outcome as u8),
        Err(text) => {
            crate::out::errln!("adverb hunt: {text}");
            ExitCode::from(crate::run::OWN_FAILURE)
        }
    }
}

/// How a hunt ended: the exit status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HuntEnd {
    /// Every single choice was tried.
    #[default]
    Nothing = 0,
    Found = 1,
    /// A failure may be chance.
    Doubtful = 2,
    /// Not every single choice was tried, for lack of time or after SIGINT.
    TooShort = 3,
    /// The program makes no call with a choice.
    NoChoice = 4,
}

#[derive(Default)]
struct HuntResult {
    outcome: HuntEnd,
    finding: Option<Finding>,
    /// The text printed at the end.
    text: String,
}

/// What was found.
struct Finding {
    attempt: Attempt,
    schedule: Schedule,
    /// The places of the first run.
    met: Vec<Met>,
}

/// Prints and keeps the result.
fn end(text: String, outcome: HuntEnd, finding: Option<Finding>) -> HuntResult {
    crate::out::progress("");
    out!("{text}");
    HuntResult { outcome, finding, text }
}

/// The end of a hunt whose program fails without a choice.
fn fails_alone(args: &Args, attempt: Attempt, rate: Rate) -> HuntResult {
    let text = report::fails_alone(args, &attempt, rate);
    let (schedule, met) = (Schedule::default(), attempt.sites.clone());
    let outcome = if rate.is_doubtful(&attempt) { HuntEnd::Doubtful } else { HuntEnd::Found };
    end(text, outcome, Some(Finding { attempt, schedule, met }))
}

fn hunt(args: &Args, directory: PathBuf, begun: Instant) -> Result<HuntResult, String> {
    let commands = args.commands();
    if commands.iter().any(|c| c.is_empty()) || args.pair != (commands.len() == 2) {
        return Err("--pair takes two commands with -- between them".into());
    }
    let suppression = args.check_suppress.as_deref().map(crate::run::suppression).transpose()?;
    let commands = commands.into_iter().map(<[_]>::to_vec).collect();
    let commands = HuntCommands::new(directory, commands, suppression, args.before.as_ref())?;
    let alone = |limits: Limits| commands.attempt(&Schedule::default(), &limits);
    let until = Some(begun + args.time);
    let first_limits = Limits { until, ..Limits::of_first(args.time) };
    let (mut first, no_box) = commands.first(&first_limits)?;
    if let Attempt { verdict: Verdict::NotStarted(status), outputs, who, .. } = &first {
        let said = outputs.iter().find(|o| o.who == *who).map_or("", |o| o.text.trim_end());
        return Err(format!("{} cannot be run (status {status}):\n{said}", who.command()));
    }
    if first.verdict == Verdict::GivenUp && adverb_survivor::is_interrupted() {
        let text = "adverb hunt: stopped in the first run\n";
        return Ok(end(text.into(), HuntEnd::TooShort, None));
    }
    if first.verdict == Verdict::GivenUp && !first.outputs.is_empty() {
        return Ok(end(report::too_long(&first), HuntEnd::TooShort, None));
    }
    if first.verdict == Verdict::GivenUp {
        return Err(format!("--before: the command has not ended within {:?}", args.time));
    }
    if let Some(what) = no_box {
        out!("adverb hunt: no box for the runs, because in a box {what}\n");
    }
    // A failure that may be chance.
    let mut doubtful = None;
    if first.verdict.is_failure() {
        let (rate, good) = shrink::alone(|| alone(first_limits))?;
        match good {
            Some(good) if rate.is_doubtful(&first) => {
                doubtful = Some(Found::alone(std::mem::replace(&mut first, good), rate, begun));
            }
            _ => return Ok(fails_alone(args, first, rate)),
        }
    }
    if first.sites.is_empty() {
        let text = "adverb hunt: the program makes no verbs call with a choice; in a Rust program \
                    without C verbs, use adverb::testing::hunt\n";
        return Ok(end(text.into(), HuntEnd::NoChoice, None));
    }
    let limits = Limits { until, ..Limits::after(&first) };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let jobs = args.jobs.map_or(processors.min(256), usize::from);
    let plain = plain::repeat(first, jobs, || alone(limits))?;
    if let Some(failed) = plain.failed {
        let (rate, good) = shrink::alone(|| alone(limits))?;
        if good.is_none() || !rate.is_doubtful(&failed) {
            return Ok(fails_alone(args, failed, rate));
        }
        doubtful = Some(Found::alone(failed, rate, begun));
    }
    let first = plain::merged(&plain.runs);
    let met: Vec<_> = first.sites.iter().map(|m| (&m.site, m.object)).collect();
    let mut plan = Plan::new(&met, args.seed);
    plain.runs.iter().for_each(|run| plan.learn(&Schedule::default(), &run.path));
    let shown = Attempt { took: plain.runs[0].took, ..first.clone() };
    out!("{}", report::begins(&shown, plan.singles()));
    if let Some(what) = &plain.alone {
        out!("adverb hunt: one run at a time, because a run failed beside another run: {what}\n");
    }
    let search = Search {
        args,
        commands: &commands,
        limits: Limits { until, ..Limits::after(&first) },
        begun,
        runs: AtomicUsize::new(plain.runs.len()),
        jobs: AtomicUsize::new(plain.jobs),
        coverage: Mutex::new(Coverage { singles: plan.singles(), ..Coverage::default() }),
        reports: Mutex::default(),
    };
    let unsure = search.until_found(plan, doubtful)?;
    let Some(found) = unsure.found else {
        let runs = search.runs.load(Ordering::Relaxed);
        let coverage = lock(&search.coverage).clone();
        let outcome = if coverage.is_whole() { HuntEnd::Nothing } else { HuntEnd::TooShort };
        let text = report::nothing(args, runs, begun.elapsed(), &unsure, &first, &coverage);
        return Ok(end(text, outcome, None));
    };
    std::fs::write(&args.out, report::file(args, &found.failure)).map_err(at(&args.out))?;
    // The failed run may have reached further places.
    let met = plain::merged(&[first, found.failure.attempt.clone()]).sites;
    let text = report::found(args, &found, &met);
    let outcome = if found.is_doubtful() { HuntEnd::Doubtful } else { HuntEnd::Found };
    let Confirmed { attempt, schedule, .. } = found.failure;
    Ok(end(text, outcome, Some(Finding { attempt, schedule, met })))
}

/// A failure that happened again, with the number and the time of the first failed run.
struct Found {
    failure: Confirmed,
    run: usize,
    after: Duration,
}

impl Found {
    /// May the failure be chance?
    fn is_doubtful(&self) -> bool {
        self.failure.with.is_doubtful(&self.failure.attempt)
    }

    /// A failure of a run without a choice.
    fn alone(attempt: Attempt, rate: Rate, begun: Instant) -> Self {
        let schedule = Schedule::default();
        let failure = Confirmed { schedule, attempt, with: rate, without: rate };
        Found { failure, run: 1, after: begun.elapsed() }
    }
}

/// What a hunt has tried.
#[derive(Clone, Debug, Default)]
struct Coverage {
    /// Schedules with a single choice that were tried, and all of them.
    tried: usize,
    singles: usize,
    /// Schedules with several choices.
    several: usize,
    /// Schedules with a seed.
    seeds: usize,
    /// Places at which a choice was made.
    disturbed: HashSet<Site>,
    /// Places whose message of UC or UD was lost, and what happened then.
    losses: BTreeMap<Site, String>,
}

impl Coverage {
    fn add(&mut self, schedule: &Schedule, attempt: &Attempt) {
        *match (schedule.rate, schedule.entries.len()) {
            (0, 0 | 1) => &mut self.tried,
            (0, _) => &mut self.several,
            _ => &mut self.seeds,
        } += 1;
        self.disturbed.extend(attempt.made.iter().map(|entry| entry.site.clone()));
        let lost = attempt.made.iter().filter(|entry| entry.choice == Choice::Lose);
        if let Some(what) = &attempt.after_loss {
            self.losses.extend(lost.map(|entry| (entry.site.clone(), what.clone())));
        }
    }

    /// Was every single choice tried?
    fn is_whole(&self) -> bool {
        self.tried >= self.singles
    }
}

#[derive(Default)]
struct SearchOutcome {
    found: Option<Found>,
    /// Failures that happened once and not again.
    once: Vec<Attempt>,
    /// Reports of runs that did not fail.
    reports: Vec<Told>,
}

struct Search<'a> {
    args: &'a Args,
    commands: &'a HuntCommands,
    limits: Limits,
    begun: Instant,
    runs: AtomicUsize,
    /// The number of runs at a time.
    jobs: AtomicUsize,
    coverage: Mutex<Coverage>,
    /// Reports of runs that did not fail.
    reports: Mutex<Vec<Told>>,
}

impl Search<'_> {
    fn attempt(&self, schedule: &Schedule, limits: &Limits) -> Result<Attempt, String> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.commands.attempt(schedule, limits)
    }

    /// A schedule of the plan was tried.
    fn tried(&self, schedule: &Schedule, attempt: &Attempt) {
        let mut coverage = lock(&self.coverage);
        coverage.add(schedule, attempt);
        let Coverage { tried, singles, .. } = &*coverage;
        let runs = self.runs.load(Ordering::Relaxed);
        let left = self.args.time.saturating_sub(self.begun.elapsed());
        crate::out::progress(&format!(
            "adverb hunt: run {runs}, {tried} of {singles} single choices, {left:.0?} left"
        ));
    }

    fn over(&self) -> bool {
        self.begun.elapsed() >= self.args.time || adverb_survivor::is_interrupted()
    }

    /// Searches for a failure that is no chance. `doubtful`: a failure that may be.
    fn until_found(
        &self,
        mut plan: Plan,
        doubtful: Option<Found>,
    ) -> Result<SearchOutcome, String> {
        let mut outcome = SearchOutcome { found: doubtful, ..SearchOutcome::default() };
        while !self.over() {
            let Some((schedule, attempt)) = self.first_failure(&mut plan)? else { break };
            let (run, after) = (self.runs.load(Ordering::Relaxed), self.begun.elapsed());
            let until = (Instant::now() + CONFIRM).min(self.begun + self.args.time + LATER);
            let jobs = self.jobs.load(Ordering::Relaxed);
            // For a report with all places in words.
            let limits = Limits { words: true, until: None, ..self.limits };
            let repeat = |schedule: &Schedule| self.attempt(schedule, &limits);
            match shrink::confirm(&schedule, attempt, until, jobs, repeat)? {
                Ok(failure) => {
                    let (with, new) = (failure.with, Found { failure, run, after });
                    let is_sure = !new.is_doubtful();
                    let known = outcome.found.as_ref().map(|found| found.failure.with);
                    if known.is_none_or(|k| with.failed * k.of > k.failed * with.of) || is_sure {
                        outcome.found = Some(new);
                    }
                    if is_sure {
                        break;
                    }
                }
                Err(attempt) => outcome.once.push(*attempt),
            }
            // Runs at the same time may disturb each other: replays run alone.
            if outcome.once.len() >= MOST_ONCE {
                self.jobs.store(1, Ordering::Relaxed);
            }
        }
        outcome.reports.append(&mut lock(&self.reports));
        Ok(outcome)
    }

    /// Runs the schedules of the plan, `jobs` at a time, until a run fails.
    fn first_failure(&self, plan: &mut Plan) -> Result<Option<(Schedule, Attempt)>, String> {
        let (plan, result) = (Mutex::new(plan), Mutex::new(Ok(None)));
        let work = || {
            while !self.over() {
                if !matches!(*lock(&result), Ok(None)) {
                    return;
                }
                let schedule = lock(&plan).next_schedule();
                match self.attempt(&schedule, &self.limits) {
                    Ok(Attempt { verdict: Verdict::GivenUp, .. }) => return,
                    Ok(attempt) if !attempt.verdict.is_failure() => {
                        self.tried(&schedule, &attempt);
                        let mut known = lock(&self.reports);
                        if known.len() < MOST_REPORTS {
                            known.extend(attempt.reports);
                        }
                        drop(known);
                        lock(&plan).learn(&schedule, &attempt.path);
                    }
                    other => {
                        if let Ok(attempt) = &other {
                            self.tried(&schedule, attempt);
                        }
                        let mut result = lock(&result);
                        if matches!(*result, Ok(None)) {
                            *result = other.map(|attempt| Some((schedule, attempt)));
                        }
                        return;
                    }
                }
            }
        };
        let jobs = self.jobs.load(Ordering::Relaxed);
        std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
        result.into_inner().unwrap_or_else(|e| e.into_inner())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}
