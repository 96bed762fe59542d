//! Pages become private again: when nobody needs them in the file, and nobody can interfere.
use super::{SPAN, SWEEP_AT_ONCE, Shadow, State, hazards, moving, prot};
use crate::maps::Vma;

impl Shadow {
    /// Gives back pages that nobody needs in the file any more, as far as that can be done now.
    pub fn sweep(&self) {
        if self.is_ours() {
            self.sweep_some(&mut self.state.lock(), usize::MAX);
        }
    }

    pub(super) fn sweep_some(&self, state: &mut State, most: usize) {
        let mut runs: Vec<_> = state.counts.idle(state.swept, SPAN).take(most).collect();
        if runs.len() < most {
            let left = most - runs.len();
            runs.extend(state.counts.idle(0, state.swept).take(left));
        }
        for (start, end) in runs {
            self.give_back(state, start, end);
            state.swept = end;
        }
    }

    /// Makes idle pages private again if nobody can interfere, and frees those that the program has no more.
    pub(super) fn give_back(&self, state: &mut State, start: u64, end: u64) {
        let mut there: Vec<Vma> = Vec::new();
        let walked = self.maps.walk(start, end, |vma| {
            if vma.is_of(self.file) && vma.offset == vma.start {
                there.push(Vma { start: vma.start.max(start), end: vma.end.min(end), ..*vma });
            }
            true
        });
        if walked.is_err() {
            return;
        }
        let mut at = start;
        for vma in &there {
            self.forget(state, at, vma.start);
            at = vma.end;
        }
        self.forget(state, at, end);
        let runs: Vec<_> = there.iter().map(|vma| (vma.start, vma.end)).collect();
        if there.is_empty() || !self.may_leave(&runs) {
            return;
        }
        let fd = self.raw_fd();
        let left = self.alone(|| {
            there.iter_mut().for_each(|vma| {
                // SAFETY: it maps these pages (asked just now), and nobody else runs.
                if let Err((at, _)) = unsafe { moving::move_out(fd, vma.start, vma.end, prot(vma.flags)) } {
                    vma.end = at;
                }
            });
        });
        if left.is_ok() {
            there.iter().for_each(|vma| state.counts.left(vma.start, vma.end));
        }
    }

    /// Can pages become private now? The cheap question first: with other threads about, nothing ever can.
    fn may_leave(&self, runs: &[(u64, u64)]) -> bool {
        self.is_alone()
            && hazards::not_under_us(&self.maps, runs).is_ok()
            && hazards::no_async_io(&self.maps).is_ok()
            && self.asked.not_pinned().is_ok()
    }

    /// The program has unmapped these pages, replaced them, or moved them elsewhere.
    fn forget(&self, state: &mut State, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let mut moved: Vec<Vma> = Vec::new();
        let looked = self.maps.kernel_files(|vma, _| {
            let offset_end = vma.offset + (vma.end - vma.start);
            if vma.is_of(self.file) && vma.offset != vma.start && vma.offset < end && offset_end > start {
                moved.push(*vma);
            }
        });
        if looked.is_err() {
            return;
        }
        if !moved.is_empty() {
            // `mremap` took them along. They are the program's, so they become private where they are now.
            let runs: Vec<_> = moved.iter().map(|vma| (vma.start, vma.end)).collect();
            // Another process may be writing to what is barred.
            let barred = runs.iter().any(|(start, end)| state.counts.is_barred(*start, *end));
            if barred || !self.may_leave(&runs) {
                return;
            }
            let fd = self.raw_fd();
            let done = self.alone(|| {
                moved.iter().all(|vma| {
                    // SAFETY: it maps this part of the file, and nobody else runs.
                    unsafe { moving::private_copy(fd, vma.start, vma.end, vma.offset, prot(vma.flags)) }
                        .is_ok()
                })
            });
            if done != Ok(true) {
                return;
            }
        }
        moving::punch(self.raw_fd(), start, end);
        state.counts.left(start, end);
    }

    /// Sees to it that the file has nothing where the program has nothing: pages that were unmapped while they could not be given
    /// back. `false`: the program has them elsewhere, and they stay.
    pub(super) fn vacate(&self, state: &mut State, start: u64, end: u64) -> bool {
        if state.counts.is_inside(start, end) {
            self.forget(state, start, end);
        }
        !state.counts.is_inside(start, end)
    }

    pub(super) fn unshare(&self, start: u64, end: u64) {
        if !self.is_ours() {
            return;
        }
        let mut state = self.state.lock();
        state.counts.unshare(start, end);
        let idle: Vec<_> = state.counts.idle(start, end).collect();
        for (start, end) in idle {
            self.give_back(&mut state, start, end);
        }
        self.sweep_some(&mut state, SWEEP_AT_ONCE);
    }
}
