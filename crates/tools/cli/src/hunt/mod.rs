//! `adverb hunt`: searches for the moment at which a program fails.
mod attempt;
mod commands;
mod files;
mod plain;
mod report;
mod shrink;
mod stuck;
#[cfg(test)]
mod tests;

use crate::out::out;
use adverb_check::Told;
use adverb_choice::{Plan, Schedule};
use attempt::{Attempt, Limits, Met, Verdict};
use commands::HuntCommands;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Exit status if a failure was found.
const FOUND: u8 = 1;
/// Number of replays, which measure how often a failure happens.
const REPLAYS: usize = 5;
const MOST_REPLAYS: usize = 20;
/// After so many failures that do not happen again, only one run runs at a time.
const MOST_ONCE: usize = 2;
/// Most reports kept of runs that did not fail.
const MOST_REPORTS: usize = 1000;
/// How long shrinking and replaying may take.
const CONFIRM: Duration = Duration::from_secs(30);

/// Searches for moments at which a program fails, and shows how to replay them
///
/// Runs the program again and again. The device chooses when completions become visible, within
/// the rules of verbs: a right program survives every choice. A failure is shrunk to the fewest
/// choices and kept in a file.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  adverb hunt -- ./my_program\n  adverb hunt --time 10m --jobs \
                        4 -- sh -c './server & ./client; wait'\n  adverb hunt --pair -- ./server \
                        --port 7000 -- ./client --port 7000\n\nExit status: 0 if no failure was \
                        found, 1 if a failure was found, 125 if adverb fails."
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
    let begun = Instant::now();
    let end = hunt(args, directory, begun).and_then(|end| {
        files::write(args, &end, begun.elapsed())?;
        Ok(end)
    });
    match end {
        Ok(end) if end.finding.is_some() => ExitCode::from(FOUND),
        Ok(_) => ExitCode::SUCCESS,
        Err(text) => {
            crate::out::errln!("adverb hunt: {text}");
            ExitCode::from(crate::run::OWN_FAILURE)
        }
    }
}

/// How a hunt ended.
#[derive(Default)]
struct HuntResult {
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
fn end(text: String, finding: Option<Finding>) -> HuntResult {
    out!("{text}");
    HuntResult { finding, text }
}

fn hunt(args: &Args, directory: PathBuf, begun: Instant) -> Result<HuntResult, String> {
    let commands = args.commands();
    if commands.iter().any(|c| c.is_empty()) || args.pair != (commands.len() == 2) {
        return Err("--pair takes two commands with -- between them".into());
    }
    let suppression = args.check_suppress.as_deref().map(crate::run::suppression).transpose()?;
    let commands = commands.into_iter().map(<[_]>::to_vec).collect();
    let commands = HuntCommands::new(directory, commands, suppression)?;
    let first = commands.attempt(&Schedule::default(), &Limits::of_first(args.time))?;
    if let Attempt { verdict: Verdict::NotStarted(status), outputs, who, .. } = &first {
        let said = outputs.iter().find(|o| o.who == *who).map_or("", |o| o.text.trim_end());
        return Err(format!("{} cannot be run (status {status}):\n{said}", who.command()));
    }
    if first.verdict.is_failure() {
        let (text, met) = (report::fails_alone(args, &first), first.sites.clone());
        return Ok(end(text, Some(Finding { attempt: first, schedule: Schedule::default(), met })));
    }
    if first.sites.is_empty() {
        let text = "adverb hunt: the program makes no verbs call with a choice\n";
        return Ok(end(text.into(), None));
    }
    let limits = Limits::after(&first);
    let jobs = args.jobs.map_or_else(processors, usize::from);
    let plain = plain::repeat(first, jobs, || commands.attempt(&Schedule::default(), &limits))?;
    if let Some((failed, of)) = plain.failed {
        let text = format!("{}  again:   in 1 of {of} runs\n", report::fails_alone(args, &failed));
        let (schedule, met) = (Schedule::default(), failed.sites.clone());
        return Ok(end(text, Some(Finding { attempt: failed, schedule, met })));
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
        limits: Limits::after(&first),
        begun,
        runs: AtomicUsize::new(plain.runs.len()),
        jobs: AtomicUsize::new(plain.jobs),
        reports: Mutex::default(),
    };
    let unsure = search.until_found(plan)?;
    let Some(found) = unsure.found else {
        let runs = search.runs.load(Ordering::Relaxed);
        return Ok(end(report::nothing(args, runs, begun.elapsed(), &unsure, &first), None));
    };
    std::fs::write(&args.out, report::file(args, &found))
        .map_err(|e| format!("{}: {e}", args.out.display()))?;
    // The failed run may have reached further places.
    let met = plain::merged(&[first, found.attempt.clone()]).sites;
    let text = report::found(args, &found, &met);
    let Found { attempt, schedule, .. } = found;
    Ok(end(text, Some(Finding { attempt, schedule, met })))
}

/// A failure that happens again.
struct Found {
    /// The shrunk schedule.
    schedule: Schedule,
    /// A failed run of the schedule.
    attempt: Attempt,
    /// The number of failed runs, and of all runs.
    again: (usize, usize),
    /// The number and the time of the first failed run.
    run: usize,
    after: Duration,
}

#[derive(Default)]
struct SearchOutcome {
    found: Option<Found>,
    /// Failures that happened once and not again.
    once: Vec<String>,
    /// Reports of runs that did not fail.
    reports: Vec<Told>,
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(256)
}

struct Search<'a> {
    args: &'a Args,
    commands: &'a HuntCommands,
    limits: Limits,
    begun: Instant,
    runs: AtomicUsize,
    /// The number of runs at a time.
    jobs: AtomicUsize,
    /// Reports of runs that did not fail.
    reports: Mutex<Vec<Told>>,
}

impl Search<'_> {
    fn try_out(&self, schedule: &Schedule) -> Result<Attempt, String> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.commands.attempt(schedule, &self.limits)
    }

    /// Repeats a failure, for a report with all places in words.
    fn repeat(&self, schedule: &Schedule) -> Result<Attempt, String> {
        self.runs.fetch_add(1, Ordering::Relaxed);
        self.commands.attempt(schedule, &Limits { words: true, ..self.limits })
    }

    fn over(&self) -> bool {
        self.begun.elapsed() >= self.args.time
    }

    fn until_found(&self, mut plan: Plan) -> Result<SearchOutcome, String> {
        let mut outcome = SearchOutcome::default();
        while !self.over() {
            let Some((schedule, attempt)) = self.first_failure(&mut plan)? else { break };
            let (run, after) = (self.runs.load(Ordering::Relaxed), self.begun.elapsed());
            let what = attempt.what();
            let until = Instant::now() + CONFIRM;
            let jobs = self.jobs.load(Ordering::Relaxed);
            let repeat = |schedule: &Schedule| self.repeat(schedule);
            match shrink::confirm(&schedule, attempt, until, jobs, repeat)? {
                Some((schedule, attempt, again)) => {
                    outcome.found = Some(Found { schedule, attempt, again, run, after });
                    break;
                }
                None => outcome.once.push(what),
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
                match self.try_out(&schedule) {
                    Ok(attempt) if !attempt.verdict.is_failure() => {
                        let mut known = lock(&self.reports);
                        if known.len() < MOST_REPORTS {
                            known.extend(attempt.reports);
                        }
                        drop(known);
                        lock(&plan).learn(&schedule, &attempt.path);
                    }
                    other => {
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
