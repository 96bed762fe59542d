//! Reduces a failing schedule to few choices, and replays the schedule.
use super::attempt::{Attempt, Verdict};
use super::{MOST_REPLAYS, REPLAYS, plain};
use crate::examination;
use adverb_choice::{ChoiceEntry, Schedule};
use std::time::{Duration, Instant};

/// Maximum number of runs for shrinking.
const RUNS: usize = 24;
/// Maximum time for shrinking: a run that hangs takes a second.
const TIME: Duration = Duration::from_secs(4);
/// A larger number of choices is not tried one by one.
const MOST: usize = 512;

/// How many runs failed, of how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub failed: usize,
    pub of: usize,
}

impl Rate {
    /// May the failure be chance? Below 3 of 5, or after a single run, unless the processes know
    /// the cause of the failed run.
    pub fn is_doubtful(self, attempt: &Attempt) -> bool {
        let is_known = attempt.lost().is_some() || examination::is_known(&attempt.reports);
        (self.failed * 5 < self.of * 3 || self.of < 2) && !is_known
    }
}

impl std::fmt::Display for Rate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.failed, self.of)
    }
}

/// A failure that happened again.
pub struct Confirmed {
    pub schedule: Schedule,
    /// A failed run of the schedule.
    pub attempt: Attempt,
    pub with: Rate,
    /// The rate without any choice.
    pub without: Rate,
}

/// Shrinks a failing schedule, and replays the schedule, up to `jobs` times at once. `Err`, with
/// the failed run, if no replay fails. Such a run counts nevertheless if the processes name a
/// mistake of the program, or if the hunt is stopped before two replays have ended.
pub fn confirm(
    schedule: &Schedule,
    attempt: Attempt,
    until: Instant,
    jobs: usize,
    run: impl Fn(&Schedule) -> Result<Attempt, String> + Sync,
) -> Result<Result<Confirmed, Box<Attempt>>, String> {
    let (mut best, mut replays) = (None, 0);
    let shrink_until = until.min(Instant::now() + TIME);
    let mut candidates = vec![shrink(schedule, &attempt, shrink_until, &run)?];
    if candidates[0] != *schedule {
        candidates.push(schedule.clone());
    }
    let original = schedule;
    for schedule in candidates {
        let (failed, with) = replay(&schedule, MOST_REPLAYS, until, jobs, &run)?;
        replays = with.of;
        if let Some(attempt) = failed {
            if best.as_ref().is_none_or(|(.., most): &(_, _, Rate)| most.failed < with.failed) {
                best = Some((schedule, attempt, with));
            }
            if with.failed * 2 > with.of {
                break;
            }
        }
    }
    let Some((schedule, failed, with)) = best else {
        let (with, without) = (Rate { failed: 1, of: 1 + replays }, Rate { failed: 0, of: 0 });
        let counts = replays < 2 || examination::is_own(&attempt.reports);
        let schedule = original.clone();
        return Ok(if counts {
            Ok(Confirmed { schedule, attempt, with, without })
        } else {
            Err(Box::new(attempt))
        });
    };
    if schedule.is_empty() {
        return Ok(Ok(Confirmed { schedule, attempt: failed, with, without: with }));
    }
    // An occasional failure may happen without any choice. Then no place is to blame.
    let (alone, without) = replay(&Schedule::default(), REPLAYS, until, jobs, &run)?;
    Ok(Ok(match alone {
        Some(attempt) if without.failed * with.of * 2 >= with.failed * without.of => {
            let schedule = Schedule::default();
            Confirmed { schedule, attempt, with: without, without }
        }
        _ => Confirmed { schedule, attempt: failed, with, without },
    }))
}

/// Replays the schedule [`REPLAYS`] times. If no run has failed by then, goes on up to `most`,
/// because a failure that also depends on the program's own timing is rare. When the time is over,
/// the schedule is still replayed twice. Until a run has failed, the runs are made one at a time:
/// then the failure needs no other run beside it. Answers a failed run.
fn replay(
    schedule: &Schedule,
    most: usize,
    until: Instant,
    jobs: usize,
    run: &(impl Fn(&Schedule) -> Result<Attempt, String> + Sync),
) -> Result<(Option<Attempt>, Rate), String> {
    let (mut failed, mut rate) = (None, Rate { failed: 0, of: 0 });
    while (rate.of < REPLAYS || rate.failed == 0 && rate.of < most)
        && (rate.of < 2 || Instant::now() < until)
    {
        let at_once = if rate.failed == 0 { 1 } else { jobs.clamp(1, REPLAYS - rate.of) };
        for attempt in plain::together(at_once, &|| run(schedule))? {
            if attempt.verdict == Verdict::GivenUp {
                return Ok((failed, rate));
            }
            rate.of += 1;
            if attempt.verdict.is_failure() {
                rate.failed += 1;
                failed.get_or_insert(attempt);
            }
        }
    }
    Ok((failed, rate))
}

/// How often the program fails without a choice, after a failed run: as many runs as it takes to
/// know, five at most. Answers a successful run as well.
pub fn alone(run: impl Fn() -> Result<Attempt, String>) -> Result<(Rate, Option<Attempt>), String> {
    let (mut rate, mut good) = (Rate { failed: 1, of: 1 }, None);
    let open = |rate: Rate| rate.failed < 3 && rate.of - rate.failed < 3;
    while rate.of < REPLAYS && open(rate) {
        let attempt = run()?;
        if attempt.verdict == Verdict::GivenUp {
            break;
        }
        rate.of += 1;
        match attempt.verdict.is_failure() {
            true => rate.failed += 1,
            false => good = Some(attempt),
        }
    }
    Ok((rate, good))
}

/// The fewest choices that make a run fail, as far as a few runs tell.
fn shrink(
    schedule: &Schedule,
    attempt: &Attempt,
    until: Instant,
    run: &impl Fn(&Schedule) -> Result<Attempt, String>,
) -> Result<Schedule, String> {
    let mut made: Vec<ChoiceEntry> = attempt.made.clone();
    let mut seen = std::collections::HashSet::new();
    made.retain(|e| seen.insert(e.clone()));
    let (Some(first), Some(last)) = (made.first().cloned(), made.last().cloned()) else {
        return Ok(schedule.clone());
    };
    let mut left = RUNS;
    let mut fails = |entries: &[ChoiceEntry]| -> Result<bool, String> {
        if left == 0 || Instant::now() >= until {
            return Ok(false);
        }
        left -= 1;
        let verdict = run(&Schedule::of(entries.to_vec()))?.verdict;
        left = if verdict == Verdict::GivenUp { 0 } else { left };
        Ok(verdict.is_failure())
    };
    // If the run fails without any choice, no place is to blame.
    if fails(&[])? && fails(&[])? {
        return Ok(Schedule::default());
    }
    // A hang happens at the last choice, and most mistakes show at the first choice.
    for one in [first, last] {
        if fails(std::slice::from_ref(&one))? {
            return Ok(Schedule::of(vec![one]));
        }
    }
    if made.len() > MOST || !fails(&made)? {
        return Ok(schedule.clone());
    }
    let mut part = made.len().div_ceil(2);
    loop {
        let mut at = 0;
        while at < made.len() && made.len() > 1 {
            let mut rest = made.clone();
            rest.drain(at..(at + part).min(made.len()));
            if !rest.is_empty() && fails(&rest)? {
                made = rest;
            } else {
                at += part;
            }
        }
        if part == 1 {
            return Ok(Schedule::of(made));
        }
        part = part.div_ceil(2);
    }
}
