//! Makes what was found small, and sees whether it happens again.
use super::attempt::Attempt;
use super::{MOST_REPLAYS, REPLAYS};
use adverb_choice::{Entry, Schedule};
use std::time::Instant;

/// Runs that shrinking may take.
const RUNS: usize = 24;
/// More choices than these are not looked at one by one.
const MOST: usize = 512;

/// A schedule, a run of it that failed, and in how many of how many runs it did.
type Confirmed = (Schedule, Attempt, (usize, usize));

/// Shrinks a schedule that made a run fail and replays it; `None` if it never fails again.
pub fn confirm(
    schedule: &Schedule,
    attempt: Attempt,
    until: Instant,
    mut run: impl FnMut(&Schedule) -> Result<Attempt, String>,
) -> Result<Option<Confirmed>, String> {
    let mut best = None;
    let mut candidates = vec![shrink(schedule, &attempt, until, &mut run)?];
    if candidates[0] != *schedule {
        candidates.push(schedule.clone());
    }
    for schedule in candidates {
        if let Some(confirmed) = replay(schedule, until, &mut run)? {
            let (again, of) = confirmed.2;
            if best.as_ref().is_none_or(|(.., (most, _)): &Confirmed| *most < again) {
                best = Some(confirmed);
            }
            if again * 2 > of {
                break;
            }
        }
    }
    // What fails now and then may do so without any choice, and then no place is to blame.
    match best {
        Some((schedule, attempt, (again, of))) if again < of && !schedule.is_empty() => {
            let alone = replay(Schedule::default(), until, &mut run)?;
            let alone = alone.filter(|(.., (n, of_alone))| n * of * 2 >= again * of_alone);
            Ok(Some(alone.unwrap_or((schedule, attempt, (again, of)))))
        }
        other => Ok(other),
    }
}

/// Replays it [`REPLAYS`] times, and until it has failed once up to [`MOST_REPLAYS`], as what
/// depends on the program's own chance as well fails seldom; when the time is over, twice at least.
fn replay(
    schedule: Schedule,
    until: Instant,
    run: &mut impl FnMut(&Schedule) -> Result<Attempt, String>,
) -> Result<Option<Confirmed>, String> {
    let (mut failed, mut again, mut of) = (None, 0, 0);
    while (of < REPLAYS || again == 0 && of < MOST_REPLAYS) && (of < 2 || Instant::now() < until) {
        of += 1;
        let attempt = run(&schedule)?;
        if attempt.verdict.is_failure() {
            again += 1;
            failed = Some(attempt);
        }
    }
    Ok(failed.map(|attempt| (schedule, attempt, (again, of))))
}

/// The fewest choices that make a run fail, as far as a few runs tell.
fn shrink(
    schedule: &Schedule,
    attempt: &Attempt,
    until: Instant,
    run: &mut impl FnMut(&Schedule) -> Result<Attempt, String>,
) -> Result<Schedule, String> {
    let mut made: Vec<Entry> = attempt.made.clone();
    let mut seen = std::collections::HashSet::new();
    made.retain(|e| seen.insert(e.clone()));
    let (Some(first), Some(last)) = (made.first().cloned(), made.last().cloned()) else {
        return Ok(schedule.clone());
    };
    let mut left = RUNS;
    let mut fails = |entries: &[Entry]| -> Result<bool, String> {
        if left == 0 || Instant::now() >= until {
            return Ok(false);
        }
        left -= 1;
        Ok(run(&Schedule::of(entries.to_vec()))?.verdict.is_failure())
    };
    // Nothing may have to be chosen, and then no place is to blame.
    if fails(&[])? && fails(&[])? {
        return Ok(Schedule::default());
    }
    // What hangs hangs at the last choice, and most mistakes show at the first.
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
