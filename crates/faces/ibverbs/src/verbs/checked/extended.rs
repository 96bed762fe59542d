//! The data path of extended CQs and queue pairs, whose calls stand in the objects themselves.
use crate::abi::*;
use crate::handles::{hot, session, this_thread};
use crate::objects::CqObj;
use crate::verbs::builder::Noted;
use crate::verbs::check::check;
use crate::verbs::{hunt, poll, wr_api};
use adverb_check::{Piece, Place, Request};
use adverb_device::cq::hunt::hunt as hunted;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{SendFlags, SendOp, WcStatus};
use core::ffi::c_int;

/// Has an extended CQ tell what is polled.
pub fn extend_cq(c: &mut ibv_cq_ex) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
}

/// Has an extended queue pair tell what is posted.
pub fn extend_qp(c: &mut ibv_qp_ex) {
    c.wr_start = Some(wr_start);
    c.wr_complete = Some(wr_complete);
}

hunt::with_address!(
    start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) => start_at, "rdx", "x2"
);
hunt::with_address!(next_poll(cq: *mut ibv_cq_ex) => next_at, "rsi", "x1");
hunt::with_address!(wr_complete(qp: *mut ibv_qp_ex) => complete_at, "rsi", "x1");

pub unsafe extern "C" fn start_at(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr, address: usize) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { poll::start_poll(cq, attr) };
    if hunted().is_some() {
        // SAFETY: if it has found something, this thread polls.
        unsafe { hunt::found_by(cq, result, address.wrapping_sub(1)) };
    }
    if result == 0 {
        // SAFETY: this thread polls.
        unsafe { present(cq, address.wrapping_sub(1)) };
    }
    result
}

pub unsafe extern "C" fn next_at(cq: *mut ibv_cq_ex, address: usize) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { poll::next_poll(cq) };
    if hunted().is_some() {
        // SAFETY: if it has found something, this thread polls.
        unsafe { hunt::found_by(cq, result, address.wrapping_sub(1)) };
    }
    if result == 0 {
        // SAFETY: this thread polls.
        unsafe { present(cq, address.wrapping_sub(1)) };
    }
    result
}

/// Tells of the current completion.
///
/// # Safety
/// This thread polls the queue, and is between start and end.
unsafe fn present(cq: *mut ibv_cq_ex, at: Place) {
    let (Some(check), Some(obj)) = (check(), session(cq, this_thread())) else { return };
    let obj: &CqObj = &obj;
    // SAFETY: between start and end this thread is the only user.
    let Some(c) = (unsafe { (*obj.current.get()).as_mut() }) else { return };
    let (ok, receive) = (c.status == WcStatus::Success, c.opcode as u32 & IBV_WC_RECV != 0);
    check.polled(&obj.cq, c.qpn, c.wr_id, ok, receive, at);
    if !ok {
        hunt::scramble_current(c, check.garbage());
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the caller's promise.
    unsafe {
        wr_api::wr_start(qp);
        wr_api::note(qp);
    }
}

unsafe extern "C" fn complete_at(qp: *mut ibv_qp_ex, address: usize) -> c_int {
    // SAFETY: used between start and complete.
    let noted = unsafe { wr_api::noted(qp) };
    let queue_pair = hot(qp).ok().map(|obj| obj.qp.clone());
    // SAFETY: the caller's promise.
    let complete = || unsafe {
        if hunted().is_some() { hunt::complete_at(qp, address) } else { wr_api::wr_complete(qp) }
    };
    let (Some(check), Some(queue_pair), Some(noted)) = (check(), queue_pair, noted) else {
        return complete();
    };
    let place = address.wrapping_sub(1);
    let all = queue_pair.signals_all();
    let requests: Vec<_> = noted.iter().map(|n| request_of(n, all, place)).collect();
    let targets: Vec<_> = noted.iter().filter_map(target_of).collect();
    // One bad request voids the chain.
    let all = requests.len();
    check.posts(&queue_pair, requests, &targets, place, |room| {
        if room < all {
            // SAFETY: used between start and complete.
            unsafe { wr_api::wr_abort(qp) };
            return (libc::ENOMEM, 0);
        }
        (complete(), 0)
    })
}

fn request_of(n: &Noted, signals_all: bool, place: Place) -> Request {
    let writes = matches!(n.op, SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. });
    let pieces = if n.inline { &[][..] } else { &n.sges };
    Request {
        wr_id: n.wr_id,
        at: 0,
        signaled: signals_all || n.flags.contains(SendFlags::SIGNALED),
        pieces: pieces.iter().map(|s| Piece { addr: s.addr, length: s.length, lkey: s.lkey }).collect(),
        writes,
        sum: None,
        place,
    }
}

/// The memory that a request writes to, if its key is one of ours.
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
