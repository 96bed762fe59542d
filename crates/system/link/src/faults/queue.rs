//! Packets of one queue pair that are held.

use std::collections::VecDeque;

use crate::packet::OwnedPacket;

/// Packets of one arrival: one, or two when it was duplicated too.
type Copies = Vec<OwnedPacket>;

/// What is held for a queue pair. Times are nanoseconds of the owner's clock.
#[derive(Default)]
pub(super) struct Queue {
    /// Delayed, in the order of arrival and of `due`.
    line: VecDeque<(u64, Copies)>,
    aside: Vec<Aside>,
}

/// Held until others have passed, or until its time is up.
struct Aside {
    due: u64,
    /// Packets that are to pass yet.
    passes: u64,
    packets: Copies,
}

impl Queue {
    /// Packets held.
    pub(super) fn len(&self) -> usize {
        let line: usize = self.line.iter().map(|(_, packets)| packets.len()).sum();
        line + self.aside.iter().map(|a| a.packets.len()).sum::<usize>()
    }

    /// Delays a packet, but never before one that came earlier; answers until when.
    pub(super) fn line_up(&mut self, due: u64, packets: Copies) -> u64 {
        let due = self.line.back().map_or(due, |(last, _)| due.max(*last));
        self.line.push_back((due, packets));
        due
    }

    /// Sets a packet aside until `passes` later ones have passed; answers until when at most.
    /// Behind a line of delayed packets its time counts from the end of the line.
    pub(super) fn set_aside(&mut self, due: u64, passes: u64, packets: Copies) -> u64 {
        let due = self.line.back().map_or(due, |(last, _)| due.max(*last));
        self.aside.push(Aside { due, passes, packets });
        due
    }

    /// A packet passes; answers those that have been overtaken by enough.
    pub(super) fn passed(&mut self) -> Copies {
        if self.aside.is_empty() {
            return Vec::new();
        }
        self.aside.iter_mut().for_each(|a| a.passes -= 1);
        self.aside.extract_if(.., |a| a.passes == 0).flat_map(|a| a.packets).collect()
    }

    /// Takes out what is due.
    pub(super) fn release(&mut self, now: u64, out: &mut Copies) {
        while let Some((_, packets)) = self.line.pop_front_if(|(due, _)| *due <= now) {
            out.extend(packets);
            out.extend(self.passed());
        }
        out.extend(self.aside.extract_if(.., |a| a.due <= now).flat_map(|a| a.packets));
    }

    /// When something is due, if nothing passes before.
    pub(super) fn next_due(&self) -> Option<u64> {
        let line = self.line.front().map(|(due, _)| *due);
        line.into_iter().chain(self.aside.iter().map(|a| a.due)).min()
    }
}
