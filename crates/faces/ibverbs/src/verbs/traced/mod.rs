//! The data path of a traced program: the same calls, which tell what they are given and answer.
//! They stand in a context's tables only in such a process, as those of a check do
//! ([`super::checked`]).
mod extended;
mod tables;

pub use tables::replace_extended;

use crate::abi::*;
use crate::handles::hot;
use crate::verbs::check::check;
use crate::verbs::trace::{alone, empty_poll, empty_polls_end, set_extend};
use crate::verbs::{checked, hunt, notify, poll, post, put};
use adverb_device::cq::hunt::hunt as hunted;
use adverb_trace::{Done, Record, Request, now, on, record, thread};
use core::ffi::c_int;

/// The opcode that a receive has here: `IBV_WC_RECV`.
const RECEIVE: u32 = IBV_WC_RECV;

/// Puts the calls of a trace into a context's table, if the process is traced.
pub fn replace(ops: &mut ibv_context_ops) {
    if on() {
        ops.poll_cq = Some(poll_cq);
        ops.req_notify_cq = Some(req_notify_cq);
        ops.post_send = Some(post_send);
        ops.post_recv = Some(post_recv);
        ops.post_srq_recv = Some(post_srq_recv);
        set_extend(extended::extend_cq, extended::extend_qp);
    }
}

hunt::with_address!(poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) => poll_at, "rcx", "x3");
hunt::with_address!(req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) => arm_at, "rdx", "x2");
hunt::with_address!(
    post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) => post_at, "rcx", "x3"
);
hunt::with_address!(
    post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) => receive_at, "rcx", "x3"
);
hunt::with_address!(
    post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) => share_at, "rcx", "x3"
);

unsafe extern "C" fn poll_at(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc, address: usize) -> c_int {
    let t = now();
    let queue = hot(cq).ok().map(|obj| obj.cq.number());
    // SAFETY: the caller's promise.
    let found = unsafe {
        if check().is_some() {
            checked::poll_at(cq, n, wc, address)
        } else if hunted().is_some() {
            hunt::poll_at(cq, n, wc, address)
        } else {
            poll::poll_cq(cq, n, wc)
        }
    };
    let Some(cq) = queue else { return found };
    if found == 0 {
        empty_poll(cq, "ibv_poll_cq", t);
        return found;
    }
    empty_polls_end();
    let count = usize::try_from(found).unwrap_or(0);
    // SAFETY: so many were written.
    let done = unsafe { post::slice(wc.cast_const(), count) }.iter().map(done_of).collect();
    let call = "ibv_poll_cq".into();
    record(&Record::Poll { t, d: now() - t, tid: thread(), call, cq, empty: 0, done, result: found });
    found
}

fn done_of(wc: &ibv_wc) -> Done {
    Done { qp: wc.qp_num, wr_id: wc.wr_id, status: wc.status, opcode: wc.opcode, bytes: wc.byte_len }
}

unsafe extern "C" fn arm_at(cq: *mut ibv_cq, solicited_only: c_int, address: usize) -> c_int {
    let t = now();
    empty_polls_end();
    let queue = hot(cq).ok().map(|obj| obj.cq.number());
    // SAFETY: the caller's promise.
    let result = unsafe {
        if hunted().is_some() {
            hunt::arm_at(cq, solicited_only, address)
        } else {
            notify::arm(cq, solicited_only, address)
        }
    };
    if let Some(cq) = queue {
        let (call, solicited) = ("ibv_req_notify_cq".into(), solicited_only != 0);
        record(&Record::Arm { t, d: now() - t, tid: thread(), call, cq, solicited, result });
    }
    result
}

/// The bytes of a request.
///
/// # Safety
/// `num` entries at `list`, if it is positive.
unsafe fn bytes(list: *const ibv_sge, num: c_int) -> u64 {
    // SAFETY: the caller's promise.
    let all = unsafe { post::slice(list, usize::try_from(num).unwrap_or(0)) };
    all.iter().map(|sge| u64::from(sge.length)).sum()
}

unsafe extern "C" fn post_at(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    address: usize,
) -> c_int {
    empty_polls_end();
    let mut refused: *mut ibv_send_wr = core::ptr::null_mut();
    let place = &raw mut refused;
    // SAFETY: the caller's promise.
    let post = || unsafe {
        if check().is_some() {
            checked::post_at(qp, wr, place, address)
        } else if hunted().is_some() {
            hunt::post_at(qp, wr, place, address)
        } else {
            post::post_send(qp, wr, place)
        }
    };
    let queue_pair = hot(qp).ok().map(|obj| obj.qp.clone());
    let result = match queue_pair {
        None => post(),
        Some(queue_pair) => {
            let (mut requests, mut at) = (Vec::new(), Vec::new());
            let mut next = wr;
            while !next.is_null() {
                // SAFETY: the program's list of requests, valid during the call.
                let (wr, bytes) = unsafe { (&*next, bytes((*next).sg_list, (*next).num_sge)) };
                let has = |flag: u32| wr.send_flags & flag != 0;
                requests.push(Request {
                    wr_id: wr.wr_id,
                    opcode: wr.opcode,
                    bytes,
                    signaled: queue_pair.signals_all() || has(IBV_SEND_SIGNALED),
                    solicited: has(IBV_SEND_SOLICITED),
                });
                at.push(next);
                next = wr.next;
            }
            let number = queue_pair.number();
            let _alone = alone(number);
            let t = now();
            let result = post();
            let all = requests.len();
            let taken = if result == 0 { all } else { at.iter().position(|at| *at == refused).unwrap_or(0) };
            let (call, tid) = ("ibv_post_send".into(), thread());
            record(&Record::Post { t, d: now() - t, tid, call, qp: number, requests, taken, result });
            result
        }
    };
    if result != 0 {
        // SAFETY: the program's place; our own word.
        unsafe { put(bad, place.read()) };
    }
    result
}

/// The receives of a list, and where they are.
///
/// # Safety
/// A valid list of the program's.
unsafe fn receives(wr: *mut ibv_recv_wr) -> (Vec<Request>, Vec<*mut ibv_recv_wr>) {
    let (mut requests, mut at) = (Vec::new(), Vec::new());
    let mut next = wr;
    while !next.is_null() {
        // SAFETY: the caller's promise.
        let (wr, bytes) = unsafe { (&*next, bytes((*next).sg_list, (*next).num_sge)) };
        let (wr_id, opcode) = (wr.wr_id, RECEIVE);
        requests.push(Request { wr_id, opcode, bytes, signaled: true, solicited: false });
        at.push(next);
        next = wr.next;
    }
    (requests, at)
}

/// Posts receives to a queue with `post`, and tells of them.
///
/// # Safety
/// A valid list of the program's.
unsafe fn post_receives(
    call: &'static str,
    (qp, srq): (Option<u32>, Option<u32>),
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    post: impl FnOnce(*mut *mut ibv_recv_wr) -> c_int,
) -> c_int {
    empty_polls_end();
    // SAFETY: the caller's promise.
    let (requests, at) = unsafe { receives(wr) };
    let mut refused: *mut ibv_recv_wr = core::ptr::null_mut();
    let _alone = alone(qp.or(srq).unwrap_or(0));
    let t = now();
    let result = post(&raw mut refused);
    let all = requests.len();
    let taken = if result == 0 { all } else { at.iter().position(|at| *at == refused).unwrap_or(0) };
    let (call, tid) = (call.into(), thread());
    record(&Record::Receive { t, d: now() - t, tid, call, qp, srq, requests, taken, result });
    if result != 0 {
        // SAFETY: the program's place.
        unsafe { put(bad, refused) };
    }
    result
}

unsafe extern "C" fn receive_at(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    address: usize,
) -> c_int {
    let number = hot(qp).ok().map(|obj| obj.qp.number());
    // SAFETY: the caller's promise.
    let post = |bad| unsafe {
        if check().is_some() {
            checked::receive_at(qp, wr, bad, address)
        } else {
            post::post_recv(qp, wr, bad)
        }
    };
    match number {
        // SAFETY: the program's list, valid during the call.
        Some(_) => unsafe { post_receives("ibv_post_recv", (number, None), wr, bad, post) },
        None => post(bad),
    }
}

unsafe extern "C" fn share_at(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    address: usize,
) -> c_int {
    let number = hot(srq).ok().map(|obj| obj.srq.number());
    // SAFETY: the caller's promise.
    let post = |bad| unsafe {
        if check().is_some() {
            checked::share_at(srq, wr, bad, address)
        } else {
            post::post_srq_recv(srq, wr, bad)
        }
    };
    match number {
        // SAFETY: the program's list, valid during the call.
        Some(_) => unsafe { post_receives("ibv_post_srq_recv", (None, number), wr, bad, post) },
        None => post(bad),
    }
}
