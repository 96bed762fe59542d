//! Polls of completion queues, and lists of work requests.
use super::polls::{empty_poll, empty_polls_end};
use super::{Kept, Post, Queue};
use crate::abi::*;
use crate::handles::hot;
use crate::verbs::post::{WorkRequest, requests, slice};
use adverb_trace::{Done, Record, Request, now, record, thread};
use core::ffi::c_int;

/// The opcode for a receive: `IBV_WC_RECV`.
const RECEIVE: u32 = IBV_WC_RECV;

/// A poll has answered.
///
/// # Safety
/// `found` completions are at `wc`, if `found` is positive.
pub unsafe fn polled(cq: u32, wc: *mut ibv_wc, t: u64, found: c_int) {
    if found == 0 {
        empty_poll(cq, "ibv_poll_cq", t);
        return;
    }
    empty_polls_end();
    let count = usize::try_from(found).unwrap_or(0);
    // SAFETY: the caller's promise.
    let done = unsafe { slice(wc.cast_const(), count) }.iter().map(done_of).collect();
    let call = "ibv_poll_cq".into();
    record(&Record::Poll {
        t,
        d: now() - t,
        tid: thread(),
        call,
        cq,
        empty: 0,
        done,
        result: found,
    });
}

fn done_of(wc: &ibv_wc) -> Done {
    Done {
        qp: wc.qp_num,
        wr_id: wc.wr_id,
        status: wc.status,
        opcode: wc.opcode,
        bytes: wc.byte_len,
    }
}

/// The bytes of a request.
///
/// # Safety
/// `num` entries at `list`, if `num` is positive.
unsafe fn bytes(list: *const ibv_sge, num: c_int) -> u64 {
    // SAFETY: the caller's promise.
    let all = unsafe { slice(list, usize::try_from(num).unwrap_or(0)) };
    all.iter().map(|sge| u64::from(sge.length)).sum()
}

/// The program posts to a send queue.
///
/// # Safety
/// `wr` is a valid list of the program.
pub unsafe fn sends(qp: *mut ibv_qp, wr: *mut ibv_send_wr) -> Option<Kept> {
    let queue_pair = hot(qp).ok().map(|obj| obj.qp.clone())?;
    let request_of = |wr: &ibv_send_wr| {
        let has = |flag: u32| wr.send_flags & flag != 0;
        Request {
            wr_id: wr.wr_id,
            opcode: wr.opcode,
            // SAFETY: the caller's promise.
            bytes: unsafe { bytes(wr.sg_list, wr.num_sge) },
            signaled: queue_pair.signals_all() || has(IBV_SEND_SIGNALED),
            solicited: has(IBV_SEND_SOLICITED),
        }
    };
    // SAFETY: the caller's promise.
    Some(unsafe { begin(Queue::Send(queue_pair.number()), wr, request_of) })
}

/// The program posts receives to a queue pair.
///
/// # Safety
/// `wr` is a valid list of the program.
pub unsafe fn receives(qp: *mut ibv_qp, wr: *mut ibv_recv_wr) -> Option<Kept> {
    let queue = Queue::Receive(hot(qp).ok()?.qp.number());
    // SAFETY: the caller's promise.
    Some(unsafe { begin_receives(queue, wr) })
}

/// The program posts receives to a shared receive queue.
///
/// # Safety
/// `wr` is a valid list of the program.
pub unsafe fn shared_receives(srq: *mut ibv_srq, wr: *mut ibv_recv_wr) -> Option<Kept> {
    let queue = Queue::Shared(hot(srq).ok()?.srq.number());
    // SAFETY: the caller's promise.
    Some(unsafe { begin_receives(queue, wr) })
}

/// # Safety
/// `wr` is a valid list of the program.
unsafe fn begin_receives(queue: Queue, wr: *mut ibv_recv_wr) -> Kept {
    let request_of = |wr: &ibv_recv_wr| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { bytes(wr.sg_list, wr.num_sge) };
        let (wr_id, opcode) = (wr.wr_id, RECEIVE);
        Request { wr_id, opcode, bytes, signaled: true, solicited: false }
    };
    // SAFETY: the caller's promise.
    unsafe { begin(queue, wr, request_of) }
}

/// # Safety
/// `wr` is a valid list of the program.
unsafe fn begin<T: WorkRequest>(queue: Queue, wr: *mut T, of: impl Fn(&T) -> Request) -> Kept {
    empty_polls_end();
    // SAFETY: the caller's promise.
    let all = unsafe { requests(wr) };
    let at = all.clone().map(|wr| core::ptr::from_ref(wr) as usize).collect();
    Post::begin(queue, all.map(of).collect(), at)
}
