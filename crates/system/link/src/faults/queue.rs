//! Packets of one queue pair that are held.

use std::collections::VecDeque;

/// What is held for a queue pair; `Vec<P>` are the packets of one arrival: one, or two when it was
/// duplicated too. Times are nanoseconds of the owner's clock.
pub(super) struct Queue<P> {
    /// Delayed, in the order of arrival and of `due`.
    line: VecDeque<(u64, Vec<P>)>,
    aside: Vec<Aside<P>>,
}

/// Held until others have passed, or until its time is up.
struct Aside<P> {
    due: u64,
    /// Packets that are to pass yet.
    passes: u64,
    packets: Vec<P>,
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Queue { line: VecDeque::new(), aside: Vec::new() }
    }
}

impl<P> Queue<P> {
    /// Packets held.
    pub(super) fn len(&self) -> usize {
        let line: usize = self.line.iter().map(|(_, packets)| packets.len()).sum();
        line + self.aside.iter().map(|a| a.packets.len()).sum::<usize>()
    }

    /// Delays a packet, but never before one that came earlier; answers until when.
    pub(super) fn line_up(&mut self, due: u64, packets: Vec<P>) -> u64 {
        let due = self.line.back().map_or(due, |(last, _)| due.max(*last));
        self.line.push_back((due, packets));
        due
    }

    /// Sets a packet aside until `passes` later ones have passed; answers until when at most.
    /// Behind a line of delayed packets its time counts from the end of the line.
    pub(super) fn set_aside(&mut self, due: u64, passes: u64, packets: Vec<P>) -> u64 {
        let due = self.line.back().map_or(due, |(last, _)| due.max(*last));
        self.aside.push(Aside { due, passes, packets });
        due
    }

    /// A packet passes; answers those that have been overtaken by enough.
    pub(super) fn passed(&mut self) -> Vec<P> {
        if self.aside.is_empty() {
            return Vec::new();
        }
        self.aside.iter_mut().for_each(|a| a.passes -= 1);
        self.aside.extract_if(.., |a| a.passes == 0).flat_map(|a| a.packets).collect()
    }

    /// Takes out what is due.
    pub(super) fn release(&mut self, now: u64, out: &mut Vec<P>) {
        while let Some((_, packets)) = self.line.pop_front_if(|(due, _)| *due <= now) {
            out.extend(packets);
            out.extend(self.passed());
        }
        out.extend(self.aside.extract_if(.., |a| a.due <= now).flat_map(|a| a.packets));
    }

    /// Takes out everything of which `is_one` says so of its first packet.
    pub(super) fn release_if(&mut self, is_one: impl Fn(&P) -> bool, out: &mut Vec<P>) {
        let is_one = |packets: &[P]| packets.first().is_some_and(&is_one);
        let (taken, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.line).into_iter().partition(|(_, packets)| is_one(packets));
        self.line = kept;
        out.extend(taken.into_iter().flat_map(|(_, packets)| packets));
        out.extend(self.aside.extract_if(.., |a| is_one(&a.packets)).flat_map(|a| a.packets));
    }

    /// When something is due, if nothing passes before.
    pub(super) fn next_due(&self) -> Option<u64> {
        let line = self.line.front().map(|(due, _)| *due);
        line.into_iter().chain(self.aside.iter().map(|a| a.due)).min()
    }
}
