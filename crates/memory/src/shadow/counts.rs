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
pub(super) struct Counts {
    runs: BTreeMap<u64, Run>,
    /// Of these, in the file.
    inside: usize,
}

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
        self.runs.iter().filter(|(_, run)| run.inside).map(|(at, run)| (*at, run.end))
    }

    /// How many runs there are of pages in the file.
    pub fn pieces(&self) -> usize {
        self.inside
    }

    fn overlapping(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, Run)> + '_ {
        let before = self.runs.range(..start).next_back().filter(|(_, run)| start < end && run.end > start);
        before.into_iter().chain(self.runs.range(start..end.max(start))).map(|(at, run)| (*at, *run))
    }

    /// Makes `at` a border.
    fn cut(&mut self, at: u64) {
        if let Some((_, run)) = self.runs.range_mut(..at).next_back()
            && run.end > at
        {
            let rest = *run;
            run.end = at;
            self.runs.insert(at, rest);
        }
    }

    fn change(&mut self, start: u64, end: u64, change: impl Fn(&mut Run)) {
        if start >= end {
            return;
        }
        let from = self.runs.range(..start).next_back().map_or(start, |(at, _)| *at);
        let near = |runs: &BTreeMap<u64, Run>| runs.range(from..=end).filter(|(_, run)| run.inside).count();
        let before = near(&self.runs);
        self.cut(start);
        self.cut(end);
        let mut at = start;
        while at < end {
            let next = self.runs.range(at..end).next().map_or(end, |(next, _)| *next);
            if next > at {
                self.runs.insert(at, Run { end: next, shared: 0, barred: 0, inside: false });
            }
            let Some(run) = self.runs.get_mut(&at) else { break };
            change(run);
            at = run.end;
        }
        self.tidy(from, end);
        self.inside = self.inside + near(&self.runs) - before;
    }

    /// Joins neighbours that say the same, from the one that begins at `from` to the one that begins at `end`, and forgets those that
    /// say nothing.
    fn tidy(&mut self, from: u64, end: u64) {
        let starts: Vec<u64> = self.runs.range(from..=end).map(|(at, _)| *at).collect();
        let mut last: Option<(u64, Run)> = None;
        for at in starts {
            let Some(run) = self.runs.get(&at).copied() else { continue };
            if !run.inside && run.shared == 0 && run.barred == 0 {
                self.runs.remove(&at);
                last = None;
                continue;
            }
            match last {
                Some((before, first)) if first.end == at && Run { end: run.end, ..first } == run => {
                    self.runs.remove(&at);
                    self.runs.insert(before, run);
                    last = Some((before, run));
                }
                _ => last = Some((at, run)),
            }
        }
    }

    /// Runs that are kept, for tests.
    #[cfg(test)]
    pub fn runs(&self) -> usize {
        self.runs.len()
    }
}

#[cfg(test)]
#[path = "counts_tests.rs"]
mod tests;
