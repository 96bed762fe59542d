//! Extended CQs and queue pairs.
use super::calls::{Kept, status_name};
use super::{CallOutcome, Check};
use crate::abi::*;
use crate::handles::{hot, session, this_thread};
use crate::objects::CqObj;
use crate::verbs::builder::Noted;
use crate::verbs::observers::undefined::scramble_current;
use crate::verbs::wr_api::with_noted;
use adverb_check::{CodeAddress, Completed, Piece, Request};
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{SendFlags, SendOp, WcStatus};

impl Check {
    /// An extended poll shows a completion.
    ///
    /// # Safety
    /// This thread polls the queue and is between start and end.
    pub(super) unsafe fn presented(&self, cq: *mut ibv_cq_ex, at: CodeAddress) {
        let Some(obj) = session(cq, this_thread()) else { return };
        let obj: &CqObj = &obj;
        // SAFETY: between start and end this thread is the only user.
        let Some(c) = (unsafe { (*obj.current.get()).as_mut() }) else { return };
        let (ok, receive) = (c.status == WcStatus::Success, c.opcode as u32 & IBV_WC_RECV != 0);
        let status = status_name(c.status as u32);
        let done = Completed {
            queue_pair: c.qpn,
            wr_id: c.wr_id,
            ok,
            receive,
            status,
            flushed: c.status == WcStatus::WrFlushErr,
        };
        self.polled(&obj.cq, done, at);
        if !ok {
            scramble_current(c, self.garbage());
        }
    }

    /// The program completes a chain. The chain is refused if a request has no place.
    ///
    /// # Safety
    /// The program calls this between start and complete.
    pub(super) unsafe fn completes_chain(
        &'static self,
        qp: *mut ibv_qp_ex,
        place: CodeAddress,
    ) -> Result<Kept, CallOutcome> {
        let Some(queue_pair) = hot(qp).ok().map(|obj| obj.qp.clone()) else {
            return Ok(Kept::Nothing);
        };
        let all = queue_pair.signals_all();
        let of = |noted: &[Noted]| {
            let requests: Vec<_> = noted.iter().map(|n| request_of(n, all, place)).collect();
            (requests, noted.iter().filter_map(target_of).collect::<Vec<_>>())
        };
        // SAFETY: the caller's promise.
        let Some((requests, targets)) = (unsafe { with_noted(qp, of) }) else {
            return Ok(Kept::Nothing);
        };
        let posting = self.posting(&queue_pair, requests, &targets, place);
        if posting.is_short() {
            self.posted(&posting, libc::ENOMEM, 0);
            return Err(CallOutcome::number(libc::ENOMEM));
        }
        Ok(Kept::Chain(posting))
    }
}

fn request_of(n: &Noted, signals_all: bool, place: CodeAddress) -> Request {
    let writes =
        matches!(n.op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
    let pieces = if n.inline { &[][..] } else { &n.sges };
    Request {
        wr_id: n.wr_id,
        at: 0,
        signaled: signals_all || n.flags.contains(SendFlags::SIGNALED),
        pieces: pieces
            .iter()
            .map(|s| Piece { addr: s.addr, length: s.length, lkey: s.lkey })
            .collect(),
        writes,
        fenced: n.flags.contains(SendFlags::FENCE),
        place,
        ..Request::default()
    }
}

/// The memory to which a request writes, if its key is a key of this process.
fn target_of(n: &Noted) -> Option<Piece> {
    let length = n.sges.iter().fold(0_u32, |sum, s| sum.saturating_add(s.length));
    let at = |remote: &Remote, length| Piece { addr: remote.va, length, lkey: remote.rkey };
    match &n.op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) => Some(at(remote, length)),
        SendOp::CompareSwap { remote, .. }
        | SendOp::FetchAdd { remote, .. }
        | SendOp::AtomicWrite(remote) => Some(at(remote, 8)),
        _ => None,
    }
}
