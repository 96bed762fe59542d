//! Extended CQs and queue pairs. A chain appears as one post when it is completed.
use super::polls::{empty_poll, empty_polls_end};
use super::{Kept, Post, Queue};
use crate::abi::*;
use crate::handles::{hot, session, this_thread};
use crate::verbs::builder::Noted;
use crate::verbs::wr_api::with_noted;
use adverb_device::engine::{SendFlags, SendOp};
use adverb_trace::{Done, Record, Request, now, record, thread};
use core::ffi::c_int;

/// Records a poll and its current completion.
///
/// # Safety
/// With result 0 this thread polls the queue.
pub unsafe fn polled(
    cq: *mut ibv_cq_ex,
    queue: Option<u32>,
    call: &'static str,
    t: u64,
    result: c_int,
) {
    let Some(number) = queue else { return };
    if result == libc::ENOENT {
        empty_poll(number, call, t);
        return;
    }
    empty_polls_end();
    let mut done = Vec::new();
    if result == 0
        && let Some(obj) = session(cq, this_thread())
    {
        // SAFETY: between start and end this thread is the only user.
        done.extend(unsafe { (*obj.current.get()).as_ref() }.map(|c| {
            let (status, opcode) = (c.status as u32, c.opcode as u32);
            Done { qp: c.qpn, wr_id: c.wr_id, status, opcode, bytes: c.byte_len }
        }));
    }
    let (d, tid, call) = (now() - t, thread(), call.into());
    record(&Record::Poll { t, d, tid, call, cq: number, empty: 0, done, result });
}

/// The program completes a chain.
///
/// # Safety
/// The program calls this between start and complete.
pub unsafe fn chain(qp: *mut ibv_qp_ex) -> Option<Kept> {
    empty_polls_end();
    let queue_pair = hot(qp).ok().map(|obj| obj.qp.clone())?;
    let all = queue_pair.signals_all();
    // SAFETY: the caller's promise.
    let requests =
        unsafe { with_noted(qp, |noted| noted.iter().map(|n| request_of(n, all)).collect()) }?;
    Some(Post::begin(Queue::Send(queue_pair.number()), requests, Vec::new()))
}

fn request_of(n: &Noted, signals_all: bool) -> Request {
    let opcode = match n.op {
        SendOp::Write(_) => IBV_WR_RDMA_WRITE,
        SendOp::WriteImm(..) => IBV_WR_RDMA_WRITE_WITH_IMM,
        SendOp::Read(_) => IBV_WR_RDMA_READ,
        SendOp::CompareSwap { .. } => IBV_WR_ATOMIC_CMP_AND_SWP,
        SendOp::FetchAdd { .. } => IBV_WR_ATOMIC_FETCH_AND_ADD,
        SendOp::AtomicWrite(_) => IBV_WR_ATOMIC_WRITE,
        SendOp::BindMw(_) => IBV_WR_BIND_MW,
        SendOp::LocalInv(..) => IBV_WR_LOCAL_INV,
        SendOp::Flush { .. } => IBV_WR_FLUSH,
        SendOp::SendImm(_) => IBV_WR_SEND_WITH_IMM,
        SendOp::SendInv(_) => IBV_WR_SEND_WITH_INV,
        // No verb of C stages a fast registration.
        SendOp::Send | SendOp::FastReg(_) => IBV_WR_SEND,
    };
    Request {
        wr_id: n.wr_id,
        opcode,
        bytes: n.bytes,
        signaled: signals_all || n.flags.contains(SendFlags::SIGNALED),
        solicited: n.flags.contains(SendFlags::SOLICITED),
    }
}
