//! The matching list of a tag matching SRQ (`ibv_post_srq_ops(3)`, `Documentation/tag_matching.md`
//! of rdma-core).
//!
//! A message that carries a tag takes the oldest entry that matches; a message without one, or
//! without a match, takes an ordinary receive of the SRQ, headers and all. In the second case it
//! was *unexpected*: the program may be posting the entry it should have had. So entries that are
//! added before the program has said that it knows of all unexpected messages match nothing until
//! it does (*synchronisation*), and what they would have matched is unexpected, too.
use crate::cause::Cause;
use crate::completion::WcOpcode;
use crate::types::PdId;
use crate::wr::{PostError, RecvWqe, Sge, SgeList, TagKind, Tagged};
use adverb_wire::tag_matching::{Rvh, TMH_LEN, TagOp, Tmh};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

#[cfg(test)]
#[path = "tags_tests.rs"]
mod tests;

/// Scatter/gather entries of a tagged buffer at most.
pub const MAX_TAG_SGE: u32 = 4;

/// A tagged buffer.
#[derive(Clone, Copy, Debug)]
pub struct TaggedBuffer<'a> {
    /// Id of the receive completions.
    pub recv_wr_id: u64,
    /// Where the data goes.
    pub sges: &'a [Sge],
    /// A message matches if its tag under the mask is this.
    pub tag: u64,
    /// Bits of the message's tag that count.
    pub mask: u64,
}

/// An operation on the list.
#[derive(Clone, Copy, Debug)]
pub enum ListOp<'a> {
    /// Appends an entry.
    Add(TaggedBuffer<'a>),
    /// Takes the entry with this handle out.
    Remove(u32),
    /// Changes nothing; for what it reports.
    Sync,
}

/// What an operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListDone {
    /// Opcode of its completion.
    pub opcode: WcOpcode,
    /// Handle of the entry that was added.
    pub handle: u32,
    /// The entry to be removed was there.
    pub good: bool,
    /// The program does not know of all unexpected messages yet.
    pub sync_needed: bool,
}

#[derive(Debug)]
struct Entry {
    handle: u32,
    tag: u64,
    mask: u64,
    wr_id: u64,
    sges: SgeList,
    /// Added when the program knew of all unexpected messages, or it does since.
    active: bool,
}

/// The list.
#[derive(Debug)]
pub(crate) struct TagList {
    entries: VecDeque<Entry>,
    max: u32,
    next: u32,
    /// Unexpected messages there were, and those that the program says it knows of. The count has
    /// 16 bits on NICs.
    unexpected: u16,
    known: u16,
}

impl TagList {
    /// A list for `max` entries.
    pub(crate) fn new(max: u32) -> Self {
        TagList { entries: VecDeque::new(), max, next: 0, unexpected: 0, known: 0 }
    }

    fn in_sync(&self) -> bool {
        self.unexpected == self.known
    }

    /// Performs an operation that reports so many unexpected messages, if it does.
    pub(crate) fn perform(&mut self, op: ListOp<'_>, known: Option<u32>) -> Result<ListDone, PostError> {
        if let ListOp::Add(buffer) = &op {
            let given = u32::try_from(buffer.sges.len()).unwrap_or(u32::MAX);
            if given > MAX_TAG_SGE {
                return Err(PostError::Invalid(Cause::TooManySges { given, max: MAX_TAG_SGE }));
            }
            if self.entries.len() >= self.max as usize {
                let queue = "the tag matching list";
                return Err(PostError::QueueFull(Cause::QueueFull { queue, depth: self.max }));
            }
        }
        if let Some(known) = known {
            self.known = known as u16;
            if self.in_sync() {
                self.entries.iter_mut().for_each(|e| e.active = true);
            }
        }
        let (opcode, handle, good) = match op {
            ListOp::Add(buffer) => {
                let handle = self.next;
                self.next = self.next.wrapping_add(1);
                self.entries.push_back(Entry {
                    handle,
                    tag: buffer.tag,
                    mask: buffer.mask,
                    wr_id: buffer.recv_wr_id,
                    sges: SgeList::new(buffer.sges),
                    active: self.in_sync(),
                });
                (WcOpcode::TmAdd, handle, true)
            }
            ListOp::Remove(handle) => {
                let at = self.entries.iter().position(|e| e.handle == handle);
                if let Some(at) = at {
                    self.entries.remove(at);
                }
                (WcOpcode::TmDel, handle, at.is_some())
            }
            ListOp::Sync => (WcOpcode::TmSync, 0, true),
        };
        Ok(ListDone { opcode, handle, good, sync_needed: !self.in_sync() })
    }

    /// The buffer of the entry that a message matches.
    pub(crate) fn take(&mut self, pd: PdId, first: &[u8]) -> Option<RecvWqe> {
        let tmh = Tmh::parse(first)?;
        let kind = match tmh.op {
            TagOp::Eager => TagKind::Eager,
            TagOp::Rendezvous => TagKind::Rendezvous(Rvh::parse(first)?),
            TagOp::NoTag | TagOp::Fin => return None,
        };
        let at = self.entries.iter().position(|e| e.active && tmh.tag & e.mask == e.tag)?;
        let entry = self.entries.remove(at)?;
        let tagged = Some(Box::new(Tagged { kind, tmh }));
        Some(RecvWqe { wr_id: entry.wr_id, pd, sges: entry.sges, tagged })
    }

    /// What the ordinary receive is told that takes a message without a matching entry.
    pub(crate) fn pass(&mut self, first: &[u8]) -> Box<Tagged> {
        let none = Tmh { op: TagOp::NoTag, app_ctx: 0, tag: 0 };
        let tagged = Tmh::parse(first).is_some_and(|h| matches!(h.op, TagOp::Eager | TagOp::Rendezvous));
        if tagged {
            self.unexpected = self.unexpected.wrapping_add(1);
        }
        Box::new(Tagged { kind: if tagged { TagKind::Unexpected } else { TagKind::NoTag }, tmh: none })
    }
}

impl Tagged {
    /// The bytes of a packet that go to the buffer.
    pub(crate) fn data<'a>(&self, payload: &'a [u8], first: bool, capacity: u64) -> &'a [u8] {
        match self.kind {
            TagKind::Eager if first => payload.get(TMH_LEN..).unwrap_or_default(),
            // Both headers, for the program to go on where the buffer is too short; nothing of a
            // rendezvous that is performed.
            TagKind::Rendezvous(rvh) => {
                let keep = if first && u64::from(rvh.len) > capacity { capacity.min(32) as usize } else { 0 };
                &payload[..keep.min(payload.len())]
            }
            _ => payload,
        }
    }

    /// Was a tag matched?
    pub(crate) fn matched(&self) -> bool {
        matches!(self.kind, TagKind::Eager | TagKind::Rendezvous(_))
    }
}
