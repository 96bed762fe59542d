//! The matching list of a tag-matching SRQ (`ibv_post_srq_ops(3)`, `Documentation/tag_matching.md`
//! of rdma-core).
//!
//! A message with a tag takes the oldest matching entry. A message without a tag, or without a
//! match, takes an ordinary receive of the SRQ, including its headers. A message with a tag and
//! without a match is *unexpected*: the program may be about to post the entry for this message.
//!
//! The program has to say that it knows of all unexpected messages (*synchronisation*). Entries
//! added before match nothing until then. Messages for such entries are unexpected, too.
use crate::cause::Cause;
use crate::completion::WcOpcode;
use crate::types::PdId;
use crate::wr::{PostError, RecvWqe, Sge, SgeList, TagKind, Tagged};
use adverb_wire::tag_matching::{Rvh, TMH_LEN, TagOp, Tmh};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Most scatter/gather entries of a tagged buffer.
pub const MAX_TAG_SGE: u32 = 4;

/// A tagged buffer.
#[derive(Clone, Copy, Debug)]
pub struct TaggedBuffer<'a> {
    /// Id of the receive completions.
    pub recv_wr_id: u64,
    /// Destination of the data.
    pub sges: &'a [Sge],
    /// A message matches if its tag under the mask has this value.
    pub tag: u64,
    /// The bits of the message's tag to compare.
    pub mask: u64,
}

/// An operation on the list.
#[derive(Clone, Copy, Debug)]
pub enum ListOp<'a> {
    /// Appends an entry.
    Add(TaggedBuffer<'a>),
    /// Removes the entry with this handle.
    Remove(u32),
    /// Changes nothing; only reports the known unexpected messages.
    Sync,
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListDone {
    /// Opcode of the operation's completion.
    pub opcode: WcOpcode,
    /// Handle of the added entry.
    pub handle: u32,
    /// For a removal: the entry was in the list.
    pub good: bool,
    /// The program does not know of all unexpected messages yet.
    pub sync_needed: bool,
}

#[derive(Debug)]
struct TagEntry {
    handle: u32,
    tag: u64,
    mask: u64,
    wr_id: u64,
    sges: SgeList,
    /// The program knew of all unexpected messages when the entry was added, or has known since.
    active: bool,
}

/// The matching list.
#[derive(Debug)]
pub(crate) struct TagList {
    entries: VecDeque<TagEntry>,
    max: u32,
    next: u32,
    /// Number of unexpected messages, and the number known to the program. The counts have 16 bits,
    /// as on NICs.
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

    /// Performs an operation. `known` is the number of unexpected messages that the program
    /// reports, if any.
    pub(crate) fn perform(
        &mut self,
        op: ListOp<'_>,
        known: Option<u32>,
    ) -> Result<ListDone, PostError> {
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
                self.entries.push_back(TagEntry {
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

    /// Takes the buffer of the matching entry.
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

    /// Describes a message without a matching entry for the ordinary receive that takes the
    /// message.
    pub(crate) fn pass(&mut self, first: &[u8]) -> Box<Tagged> {
        let kind = match Tmh::parse(first).map(|header| header.op) {
            Some(TagOp::Eager | TagOp::Rendezvous) => {
                self.unexpected = self.unexpected.wrapping_add(1);
                TagKind::Unexpected
            }
            _ => TagKind::NoTag,
        };
        Box::new(Tagged { kind, tmh: Tmh { op: TagOp::NoTag, app_ctx: 0, tag: 0 } })
    }
}

impl Tagged {
    /// The bytes of a packet for the buffer.
    pub(crate) fn data<'a>(&self, payload: &'a [u8], first: bool, capacity: u64) -> &'a [u8] {
        match self.kind {
            TagKind::Eager if first => payload.get(TMH_LEN..).unwrap_or_default(),
            // If the buffer is too short, both headers go to the buffer, so that the program can
            // continue by itself. A rendezvous performed by the SRQ puts nothing there.
            TagKind::Rendezvous(rvh) => {
                let is_short = first && u64::from(rvh.len) > capacity;
                let keep = if is_short { capacity.min(32) as usize } else { 0 };
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
