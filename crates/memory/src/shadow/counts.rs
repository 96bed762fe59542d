//! How many registrations stand on which pages.
use std::collections::BTreeMap;

/// What is known of a run of pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    end: u64,
    /// Registrations whose pages lie in the file.
    shared: u32,
    /// Registrations that are reached in other ways: while there is one, pages must not move, either way.
    barred: u32,
    /// The pages were moved into the file, or made there.
    inside: bool,
}

/// Runs of pages by address. No two overlap; neighbours that say the same are one.
#[derive(Debug, Default)]
pub(super) struct Counts(BTreeMap<u64, Run>);

impl Counts {
    /// A registration of pages that lie in the file.
    pub fn share(&mut self, start: u64, end: u64) {
        self.change(start, end, |run| {
            run.shared += 1;
            run.inside = true;
        });
    }

    /// End of a registration that [`share`](Self::share) began.
    pub fn unshare(&mut self, start: u64, end: u64) {
        self.change(start, end, |run| run.shared = run.shared.saturating_sub(1));
    }

    /// A registration whose pages must stay where they are.
    pub fn bar(&mut self, start: u64, end: u64) {
        self.change(start, end, |run| run.barred += 1);
    }

    /// End of a registration that [`bar`](Self::bar) began.
    pub fn unbar(&mut self, start: u64, end: u64) {
        self.change(start, end, |run| run.barred = run.barred.saturating_sub(1));
    }

    /// The pages left the file.
    pub fn left(&mut self, start: u64, end: u64) {
        self.change(start, end, |run| run.inside = false);
    }

    /// Does a barred registration stand on a page of the range?
    pub fn is_barred(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).any(|(_, run)| run.barred > 0)
    }

    /// Is a page of the range in the file?
    pub fn is_inside(&self, start: u64, end: u64) -> bool {
        self.overlapping(start, end).any(|(_, run)| run.inside)
    }

    /// Runs of pages in the file that nobody needs there, of the whole address space or of a part.
    pub fn idle(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.overlapping(start, end)
            .filter(|(_, run)| run.inside && run.shared == 0 && run.barred == 0)
            .map(move |(at, run)| (at.max(start), run.end.min(end)))
    }

    /// Runs of pages in the file.
    pub fn inside(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.0.iter().filter(|(_, run)| run.inside).map(|(at, run)| (*at, run.end))
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Run)> + '_ {
        let before = self.0.range(..start).next_back().filter(|(_, run)| start < end && run.end > start);
        before.into_iter().chain(self.0.range(start..end.max(start))).map(|(at, run)| (*at, *run))
    }

    /// Makes `at` a border.
    fn cut(&mut self, at: u64) {
        if let Some((_, run)) = self.0.range_mut(..at).next_back()
            && run.end > at
        {
            let rest = *run;
            run.end = at;
            self.0.insert(at, rest);
        }
    }

    fn change(&mut self, start: u64, end: u64, change: impl Fn(&mut Run)) {
        if start >= end {
            return;
        }
        self.cut(start);
        self.cut(end);
        let mut at = start;
        while at < end {
            let next = self.0.range(at..end).next().map_or(end, |(next, _)| *next);
            if next > at {
                self.0.insert(at, Run { end: next, shared: 0, barred: 0, inside: false });
            }
            let Some(run) = self.0.get_mut(&at) else { break };
            change(run);
            at = run.end;
        }
        self.tidy(start, end);
    }

    /// Joins neighbours that say the same around a range, and forgets those that say nothing.
    fn tidy(&mut self, start: u64, end: u64) {
        let from = self.0.range(..start).next_back().map_or(start, |(at, _)| *at);
        let starts: Vec<u64> = self.0.range(from..=end).map(|(at, _)| *at).collect();
        let mut last: Option<(u64, Run)> = None;
        for at in starts {
            let Some(run) = self.0.get(&at).copied() else { continue };
            if !run.inside && run.shared == 0 && run.barred == 0 {
                self.0.remove(&at);
                last = None;
                continue;
            }
            match last {
                Some((before, first)) if first.end == at && Run { end: run.end, ..first } == run => {
                    self.0.remove(&at);
                    self.0.insert(before, run);
                    last = Some((before, run));
                }
                _ => last = Some((at, run)),
            }
        }
    }

    /// Runs that are kept, for tests.
    #[cfg(test)]
    pub fn runs(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
