//! Delayed packets of one queue pair.

use std::collections::VecDeque;

/// The delayed packets of a queue pair. `Vec<P>` has the packets of one arrival: one packet, or two
/// if it was also duplicated. Times are nanoseconds of the owner's clock.
pub(super) struct Queue<P> {
    /// Delayed packets, in the order of arrival and of `due`.
    line: VecDeque<(u64, Vec<P>)>,
    aside: Vec<Aside<P>>,
}

/// A packet delayed until others have passed, or until it is due.
struct Aside<P> {
    due: u64,
    /// The number of packets still to pass.
    passes: u64,
    packets: Vec<P>,
}

impl<P> Default for Queue<P> {
    fn default() -> Self {
        Queue { line: VecDeque::new(), aside: Vec::new() }
    }
}

impl<P> Queue<P> {
    /// The number of delayed packets.
    pub(super) fn len(&self) -> usize {
        let line: usize = self.line.iter().map(|(_, packets)| packets.len()).sum();
        line + self.aside.iter().map(|a| a.packets.len()).sum::<usize>()
    }

    /// Delays a packet, but never beyond an earlier packet's place in the order; returns the due
    /// time.
    pub(super) fn line_up(&mut self, due: u64, packets: Vec<P>) -> u64 {
        let due = self.line.back().map_or(due, |(last, _)| due.max(*last));
        self.line.push_back((due, packets));
        due
    }

    /// Delays a packet until `passes` later packets have passed; returns the latest due time.
    /// Behind a line of delayed packets, the time counts from the end of the line.
    pub(super) fn set_aside(&mut self, due: u64, passes: u64, packets: Vec<P>) -> u64 {
        let due = self.line.back().map_or(due, |(last, _)| due.max(*last));
        self.aside.push(Aside { due, passes, packets });
        due
    }

    /// Counts a passing packet; returns the packets overtaken often enough.
    pub(super) fn passed(&mut self) -> Vec<P> {
        if self.aside.is_empty() {
            return Vec::new();
        }
        self.aside.iter_mut().for_each(|a| a.passes -= 1);
        self.aside.extract_if(.., |a| a.passes == 0).flat_map(|a| a.packets).collect()
    }

    /// Removes the packets that are due.
    pub(super) fn release(&mut self, now: u64, out: &mut Vec<P>) {
        while let Some((_, packets)) = self.line.pop_front_if(|(due, _)| *due <= now) {
            out.extend(packets);
            out.extend(self.passed());
        }
        out.extend(self.aside.extract_if(.., |a| a.due <= now).flat_map(|a| a.packets));
    }

    /// Removes all arrivals with a first packet for which `is_one` is true.
    pub(super) fn release_if(&mut self, is_one: impl Fn(&P) -> bool, out: &mut Vec<P>) {
        let is_one = |packets: &[P]| packets.first().is_some_and(&is_one);
        let (taken, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.line).into_iter().partition(|(_, packets)| is_one(packets));
        self.line = kept;
        out.extend(taken.into_iter().flat_map(|(_, packets)| packets));
        out.extend(self.aside.extract_if(.., |a| is_one(&a.packets)).flat_map(|a| a.packets));
    }

    /// The next due time, if no packet passes before.
    pub(super) fn next_due(&self) -> Option<u64> {
        let line = self.line.front().map(|(due, _)| *due);
        line.into_iter().chain(self.aside.iter().map(|a| a.due)).min()
    }
}
