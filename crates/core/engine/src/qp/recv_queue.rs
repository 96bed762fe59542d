//! The receive queue of a queue pair without SRQ: a ring, with the scatter/gather entries in one
//! slab, so that a post allocates nothing.
use crate::cause::Cause;
use crate::room::{self, OutOfMemory};
use crate::types::PdId;
use crate::wr::{PostError, RecvWqe, RecvWr, Sge, SgeList};
use alloc::vec::Vec;

/// A posted receive. Its entries stand in the slab at `slot * max_sge`.
#[derive(Clone, Copy, Debug)]
struct RecvSlot {
    wr_id: u64,
    sges: u32,
}

/// Posted receives, oldest first. The active receive is in the responder and not here.
#[derive(Debug)]
pub(crate) struct RecvQueue {
    pd: PdId,
    depth: u32,
    max_sge: u32,
    /// Memory for `depth` slots is allocated with the queue, so that no post allocates. Pages are
    /// touched at the first use of a slot, so a thousand idle queue pairs cost no pages.
    entries: Vec<RecvSlot>,
    slab: Vec<Sge>,
    head: u32,
    /// Number of waiting receives.
    pub(crate) len: u32,
    /// How many receives have left the queue since the queue was made: the number of the oldest
    /// receive.
    pub(crate) taken: u64,
}

impl RecvQueue {
    /// A queue for `depth` receives of `max_sge` entries.
    pub(crate) fn new(pd: PdId, depth: u32, max_sge: u32) -> Result<Self, OutOfMemory> {
        let entries = room::list(depth as usize)?;
        let slab = room::list(depth as usize * max_sge as usize)?;
        Ok(RecvQueue { pd, depth, max_sge, entries, slab, head: 0, len: 0, taken: 0 })
    }

    /// The entries of a waiting receive, by its number.
    pub(crate) fn sges_of(&self, receive: u64) -> Option<&[Sge]> {
        let behind =
            receive.checked_sub(self.taken).filter(|behind| *behind < u64::from(self.len))?;
        let slot = self.wrap(self.head, behind as u32);
        Some(&self.slab[slot * self.max_sge as usize..][..self.entries[slot].sges as usize])
    }

    /// Drops all receives.
    pub(crate) fn clear(&mut self) {
        self.taken += u64::from(self.len);
        self.head = 0;
        self.len = 0;
    }

    /// Queues a receive.
    pub(crate) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let given = u32::try_from(wr.sges.len()).unwrap_or(u32::MAX);
        if given > self.max_sge {
            return Err(PostError::Invalid(Cause::TooManySges { given, max: self.max_sge }));
        }
        if self.len >= self.depth {
            let cause = Cause::QueueFull { queue: "receive queue", depth: self.depth };
            return Err(PostError::QueueFull(cause));
        }
        let slot = self.wrap(self.head, self.len);
        let entry = RecvSlot { wr_id: wr.wr_id, sges: given };
        let width = self.max_sge as usize;
        if slot == self.entries.len() {
            self.entries.push(entry);
            self.slab.resize((slot + 1) * width, Sge::default());
        } else {
            self.entries[slot] = entry;
        }
        self.slab[slot * width..][..wr.sges.len()].copy_from_slice(wr.sges);
        self.len += 1;
        Ok(())
    }

    /// Takes the oldest receive.
    pub(crate) fn pop(&mut self) -> Option<RecvWqe> {
        if self.len == 0 {
            return None;
        }
        let slot = self.head as usize;
        let entry = self.entries[slot];
        let sges = &self.slab[slot * self.max_sge as usize..][..entry.sges as usize];
        let wqe =
            RecvWqe { wr_id: entry.wr_id, pd: self.pd, sges: SgeList::new(sges), tagged: None };
        self.advance();
        Some(wqe)
    }

    /// Takes the oldest receive and answers its id, for a flush.
    pub(crate) fn pop_id(&mut self) -> Option<u64> {
        if self.len == 0 {
            return None;
        }
        let id = self.entries[self.head as usize].wr_id;
        self.advance();
        Some(id)
    }

    fn advance(&mut self) {
        self.head = self.wrap(self.head, 1) as u32;
        self.len -= 1;
        self.taken += 1;
    }

    /// `(at + by) % depth`. Both are at most `depth`, which limits keep far below 2^31.
    fn wrap(&self, at: u32, by: u32) -> usize {
        let to = u64::from(at) + u64::from(by);
        let depth = u64::from(self.depth);
        (if to >= depth { to - depth } else { to }) as usize
    }
}
