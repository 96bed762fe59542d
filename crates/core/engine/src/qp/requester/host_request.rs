//! One-sided requests that the host performs itself, where it reaches the peer's memory. There is
//! no packet and no PSN.
//!
//! Only the oldest request may go this way, and only while no earlier request is on its way. So the
//! order within the queue pair holds. An irregular request (key, length, state) is left to the
//! packet path, which checks and fails as on a network.
//!
//! A WRITE or READ for an idle queue is performed before it is queued, because no code would
//! look at its place in the queue.
use super::send::MAX_MSG;
use super::state::{Cursor, Requester};
use crate::completion::{Completion, WcOpcode};
use crate::effects::Effects;
use crate::keys::KeyTable;
use crate::packet::Data;
use crate::qp::QpConfig;
use crate::qp::context::QpCtx;
use crate::types::{Access, QpState, QpType};
use crate::wr::{SendFlags, SendOp};

/// A request for the host to perform at once.
#[derive(Clone, Copy, Debug)]
pub struct HostRequest<'a> {
    /// WRITE (with immediate data or without), READ, an atomic, ATOMIC WRITE or FLUSH.
    pub op: SendOp,
    /// Bytes of the message.
    pub len: u64,
    /// The bytes to write, or (READ, atomics) the place for the answer: registered memory, checked.
    pub local: Data<'a>,
}

impl Requester {
    /// Are all requests before the oldest done, and is there an oldest?
    fn is_clear(&self) -> bool {
        self.sq.head < self.sq.posted && self.has_begun_nothing()
    }

    /// Is nothing on its way, and no failure pending?
    #[inline(always)]
    fn has_begun_nothing(&self) -> bool {
        let head = self.sq.head;
        head == self.next_start
            && self.cur.idx == head
            && self.una == self.high
            && self.failure.is_none()
            && self.peer_end.is_none()
            && self.rnr_until.is_none()
            && self.key_op.is_none()
    }

    /// The oldest request, if the host can perform it directly.
    pub(crate) fn host_request(
        &mut self,
        ctx: &QpCtx<'_>,
        keys: &KeyTable,
    ) -> Option<HostRequest<'_>> {
        if ctx.attr.state != QpState::Rts || ctx.config.qp_type != QpType::Rc || !self.is_clear() {
            return None;
        }
        let idx = self.sq.head;
        let wqe = self.sq.wqe(idx);
        let (op, len) = (wqe.op, wqe.len);
        let needed = match op {
            SendOp::Write(_)
            | SendOp::WriteImm(..)
            | SendOp::AtomicWrite(_)
            | SendOp::Flush { .. } => Access::empty(),
            SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => {
                Access::LOCAL_WRITE
            }
            _ => return None,
        };
        let fits = match op {
            SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } | SendOp::AtomicWrite(_) => {
                len == 8
            }
            _ => len <= MAX_MSG,
        };
        if !fits || (ctx.attr.max_rd_atomic == 0 && wqe.op.needs_response()) {
            return None;
        }
        if wqe.inline {
            let local = Data::Bytes(self.sq.inline(idx, 0, len as usize));
            return Some(HostRequest { op, len, local });
        }
        self.ranges.clear();
        let mut left = len;
        for s in self.sq.sges(idx) {
            // An atomic takes the first eight bytes of a longer buffer.
            let take = left.min(u64::from(s.length)) as u32;
            if take > 0 {
                let range = keys.check_local(ctx.config.pd, s.lkey, needed, s.addr, take).ok()?;
                self.ranges.push(range);
            }
            left -= u64::from(take);
        }
        Some(HostRequest { op, len, local: Data::Gather(&self.ranges) })
    }

    /// The host performed the request just answered by [`Requester::host_request`].
    pub(crate) fn host_request_done(&mut self, config: &QpConfig, effects: &mut Effects) {
        let idx = self.sq.head;
        self.complete(config, idx, effects);
        self.sq.head = idx + 1;
        self.next_start = idx + 1;
        self.cur = Cursor { idx: idx + 1, psn: self.cur.psn, ..Cursor::default() };
    }

    /// Is nothing queued, nothing on its way, and no failure pending?
    #[inline(always)]
    fn is_idle(&self) -> bool {
        self.sq.head == self.sq.staged && self.has_begun_nothing()
    }

    /// May a WRITE or READ be performed before it is queued?
    #[inline(always)]
    pub(crate) fn takes_host_post(&self, ctx: &QpCtx<'_>, read: bool) -> bool {
        ctx.attr.state == QpState::Rts
            && ctx.config.qp_type == QpType::Rc
            && self.is_idle()
            && self.sq.has_room()
            && !(read && ctx.attr.max_rd_atomic == 0)
    }

    /// The host performed a request before it was queued. `read` is the number of bytes of a READ.
    /// Answers the completion, if the request asks for a completion.
    #[inline(always)]
    pub(crate) fn host_posted(
        &mut self,
        config: &QpConfig,
        wr_id: u64,
        flags: SendFlags,
        opcode: WcOpcode,
        read: u32,
    ) -> Option<Completion> {
        let next = self.sq.pass();
        self.next_start = next;
        self.cur = Cursor { idx: next, psn: self.cur.psn, ..Cursor::default() };
        if !config.signal_all && !flags.contains(SendFlags::SIGNALED) {
            return None;
        }
        Some(Completion { byte_len: read, ..Completion::success(wr_id, config.qpn, opcode) })
    }
}
