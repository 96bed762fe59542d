//! Reduces a failing schedule to few choices, and replays the schedule.
use super::attempt::Attempt;
use super::{MOST_REPLAYS, REPLAYS, plain};
use adverb_choice::{ChoiceEntry, Schedule};
use std::time::{Duration, Instant};

/// Maximum number of runs for shrinking, and maximum time: a run that hangs takes a second.
const RUNS: usize = 24;
const TIME: Duration = Duration::from_secs(4);
/// A larger number of choices is not tried one by one.
const MOST: usize = 512;

/// A schedule, a failed run of the schedule, the number of failed runs, and the number of all runs.
type Confirmed = (Schedule, Attempt, (usize, usize));

/// Shrinks a failing schedule, and replays the schedule, up to `jobs` times at once. `None` if no
/// replay fails.
pub fn confirm(
    schedule: &Schedule,
    attempt: Attempt,
    until: Instant,
    jobs: usize,
    run: impl Fn(&Schedule) -> Result<Attempt, String> + Sync,
) -> Result<Option<Confirmed>, String> {
    let mut best = None;
    let shrink_until = until.min(Instant::now() + TIME);
    let mut candidates = vec![shrink(schedule, &attempt, shrink_until, &run)?];
    if candidates[0] != *schedule {
        candidates.push(schedule.clone());
    }
    for schedule in candidates {
        if let Some(confirmed) = replay(schedule, until, jobs, &run)? {
            let (again, of) = confirmed.2;
            if best.as_ref().is_none_or(|(.., (most, _)): &Confirmed| *most < again) {
                best = Some(confirmed);
            }
            if again * 2 > of {
                break;
            }
        }
    }
    // An occasional failure may happen without any choice. Then no place is to blame.
    match best {
        Some((schedule, attempt, (again, of))) if again < of && !schedule.is_empty() => {
            let alone = replay(Schedule::default(), until, jobs, &run)?;
            let alone = alone.filter(|(.., (n, of_alone))| n * of * 2 >= again * of_alone);
            Ok(Some(alone.unwrap_or((schedule, attempt, (again, of)))))
        }
        other => Ok(other),
    }
}

/// Replays the schedule [`REPLAYS`] times. If no run has failed by then, goes on up to
/// [`MOST_REPLAYS`], because a failure that also depends on the program's own timing is rare. When
/// the time is over, the schedule is still replayed twice. Until a run has failed, the runs are
/// made one at a time: then the failure needs no other run beside it.
fn replay(
    schedule: Schedule,
    until: Instant,
    jobs: usize,
    run: &(impl Fn(&Schedule) -> Result<Attempt, String> + Sync),
) -> Result<Option<Confirmed>, String> {
    let (mut failed, mut again, mut of) = (None, 0, 0);
    while (of < REPLAYS || again == 0 && of < MOST_REPLAYS) && (of < 2 || Instant::now() < until) {
        let at_once = if again == 0 { 1 } else { jobs.clamp(1, REPLAYS - of) };
        for attempt in plain::together(at_once, &|| run(&schedule))? {
            of += 1;
            if attempt.verdict.is_failure() {
                again += 1;
                failed.get_or_insert(attempt);
            }
        }
    }
    Ok(failed.map(|attempt| (schedule, attempt, (again, of))))
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
        Ok(run(&Schedule::of(entries.to_vec()))?.verdict.is_failure())
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
