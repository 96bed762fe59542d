//! The runs without choices: whether the program fails by itself, and how many runs are possible at
//! the same time.
use super::attempt::{Attempt, Verdict};
use crate::examination;
use std::time::{Duration, Instant};

/// The number of runs without choices.
const RUNS: usize = 5;
/// After this time no further run without choices begins.
const TIME: Duration = Duration::from_secs(1);
/// So many runs at the same time show whether the program allows several.
const AT_ONCE: usize = 8;

/// What the runs without choices show.
pub struct PlainRuns {
    /// The successful runs.
    pub runs: Vec<Attempt>,
    /// A failed run. No other run is the reason of the failure.
    pub failed: Option<Attempt>,
    /// How many runs are possible at a time.
    pub jobs: usize,
    /// The failure of runs at the same time, if single runs did not fail.
    pub alone: Option<String>,
}

/// Runs the program again without choices, up to `jobs` times at once. `first` was a success.
pub fn repeat(
    first: Attempt,
    jobs: usize,
    run: impl Fn() -> Result<Attempt, String> + Sync,
) -> Result<PlainRuns, String> {
    let begun = Instant::now();
    let mut plain = PlainRuns { runs: vec![first], failed: None, jobs, alone: None };
    // A program that runs for long is tried at least once with several runs at a time.
    let mut tried = plain.jobs == 1;
    while plain.runs.len() < RUNS && (begun.elapsed() < TIME || !tried) {
        let at_once = plain.jobs.min(AT_ONCE);
        let (good, mut bad): (Vec<_>, Vec<_>) = together(at_once, &run)?
            .into_iter()
            .partition(|attempt| attempt.verdict == Verdict::Fine);
        plain.runs.extend(good);
        if bad.iter().any(|attempt| attempt.verdict == Verdict::GivenUp) {
            break;
        }
        tried = true;
        match bad.pop() {
            Some(failed) if plain.jobs == 1 || examination::is_own(&failed.reports) => {
                plain.failed = Some(failed);
                break;
            }
            // The reason is the other run, unless a single run fails as well.
            Some(failed) => {
                plain.jobs = 1;
                plain.alone = Some(failed.what());
                plain.runs.truncate(1);
            }
            None => {}
        }
    }
    Ok(plain)
}

/// One run that stands for all: the first run, with the places of all runs and the longest times.
pub fn merged(runs: &[Attempt]) -> Attempt {
    let mut all = runs[0].clone();
    for run in &runs[1..] {
        for met in &run.sites {
            if !all.sites.iter().any(|m| (&m.site, m.object) == (&met.site, met.object)) {
                all.sites.push(met.clone());
            }
        }
        all.reports.extend(run.reports.iter().cloned());
        (all.took, all.silence) = (all.took.max(run.took), all.silence.max(run.silence));
    }
    all
}

/// Makes so many runs at once.
pub fn together(
    n: usize,
    run: &(impl Fn() -> Result<Attempt, String> + Sync),
) -> Result<Vec<Attempt>, String> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n).map(|_| scope.spawn(run)).collect();
        let lost = |_| Err("a run could not be watched".to_owned());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn ended(verdict: Verdict) -> Attempt {
        Attempt { verdict, ..Attempt::default() }
    }

    /// HUN-4: a program that fails without a choice now and then is found before any choice.
    #[test]
    fn a_failure_without_a_choice_is_found_first() {
        let n = AtomicUsize::new(0);
        let run = || {
            let third = n.fetch_add(1, Ordering::Relaxed) == 2;
            Ok(ended(if third { Verdict::Status(3) } else { Verdict::Fine }))
        };
        let plain = repeat(ended(Verdict::Fine), 1, run).unwrap();
        assert_eq!(plain.failed.unwrap().verdict, Verdict::Status(3));
        assert_eq!(n.load(Ordering::Relaxed), 3, "no run follows");
        let plain = repeat(ended(Verdict::Fine), 1, || Ok(ended(Verdict::Fine))).unwrap();
        assert!(plain.failed.is_none() && plain.runs.len() == RUNS);
    }

    /// HUN-4: a program that fails only beside another run gets one run at a time. Such a failure
    /// is not the program's.
    #[test]
    fn a_program_that_cannot_run_twice_at_once_runs_alone() {
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let run = || {
            let beside = running.fetch_add(1, Ordering::SeqCst);
            most.fetch_max(beside + 1, Ordering::SeqCst);
            let until = Instant::now() + Duration::from_millis(100);
            while running.load(Ordering::SeqCst) + beside < 2 && Instant::now() < until {
                std::thread::yield_now();
            }
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(ended(if beside > 0 { Verdict::Status(98) } else { Verdict::Fine }))
        };
        let plain = repeat(ended(Verdict::Fine), 2, run).unwrap();
        assert_eq!((plain.jobs, most.into_inner()), (1, 2));
        assert!(plain.failed.is_none() && plain.alone.unwrap().contains("status 98"));
        let plain = repeat(ended(Verdict::Fine), 4, || Ok(ended(Verdict::Fine))).unwrap();
        assert!(plain.jobs == 4 && plain.alone.is_none());
    }
}
