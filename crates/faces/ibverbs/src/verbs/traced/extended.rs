//! The data path of extended CQs and queue pairs, whose calls stand in the objects themselves. A
//! chain shows as one post when it is completed.
use crate::abi::*;
use crate::handles::{hot, session, this_thread};
use crate::verbs::builder::Noted;
use crate::verbs::check::check;
use crate::verbs::trace::{alone, empty_poll, empty_polls_end};
use crate::verbs::wr_api::noted;
use crate::verbs::{checked, hunt, poll, wr_api};
use adverb_device::engine::{SendFlags, SendOp};
use adverb_trace::{Done, Record, Request, now, record, thread};
use core::ffi::c_int;

/// Has an extended CQ tell what is polled.
pub fn extend_cq(c: &mut ibv_cq_ex) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
}

/// Has an extended queue pair tell what is posted. One that is checked tells the check alone.
pub fn extend_qp(c: &mut ibv_qp_ex) {
    if check().is_none() {
        c.wr_start = Some(wr_start);
        c.wr_complete = Some(wr_complete);
    }
}

hunt::with_address!(
    start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) => start_at, "rdx", "x2"
);
hunt::with_address!(next_poll(cq: *mut ibv_cq_ex) => next_at, "rsi", "x1");

unsafe extern "C" fn start_at(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr, address: usize) -> c_int {
    let t = now();
    // SAFETY: the caller's promise.
    let result = unsafe {
        if check().is_some() { checked::start_at(cq, attr, address) } else { poll::start_poll(cq, attr) }
    };
    let queue = hot(cq).ok().map(|obj| obj.cq.number());
    // SAFETY: this thread polls.
    unsafe { tell(cq, queue, "ibv_start_poll", t, result) };
    result
}

unsafe extern "C" fn next_at(cq: *mut ibv_cq_ex, address: usize) -> c_int {
    let t = now();
    // SAFETY: the caller's promise.
    let result =
        unsafe { if check().is_some() { checked::next_at(cq, address) } else { poll::next_poll(cq) } };
    let queue = session(cq, this_thread()).map(|obj| obj.cq.number());
    // SAFETY: this thread polls.
    unsafe { tell(cq, queue, "ibv_next_poll", t, result) };
    result
}

/// Tells of a poll, and of what is current after it.
///
/// # Safety
/// This thread polls the queue.
unsafe fn tell(cq: *mut ibv_cq_ex, queue: Option<u32>, call: &'static str, t: u64, result: c_int) {
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

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe {
        wr_api::wr_start(qp);
        wr_api::note(qp);
    }
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    empty_polls_end();
    // SAFETY: used between start and complete.
    let noted = unsafe { noted(qp) };
    let queue_pair = hot(qp).ok().map(|obj| obj.qp.clone());
    let (Some(queue_pair), Some(noted)) = (queue_pair, noted) else {
        // SAFETY: the caller's promise.
        return unsafe { wr_api::wr_complete(qp) };
    };
    let all = queue_pair.signals_all();
    let requests: Vec<_> = noted.iter().map(|n| request_of(n, all)).collect();
    let number = queue_pair.number();
    let _alone = alone(number);
    let t = now();
    // SAFETY: the caller's promise.
    let result = unsafe { wr_api::wr_complete(qp) };
    // One bad request voids the chain.
    let taken = if result == 0 { requests.len() } else { 0 };
    let (call, tid) = ("ibv_wr_complete".into(), thread());
    record(&Record::Post { t, d: now() - t, tid, call, qp: number, requests, taken, result });
    result
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
