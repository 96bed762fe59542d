//! The instrumented entry points of the data path. Each surrounds the plain entry point with the
//! instruments of the list.
use super::call::{Call, CallOutcome, What};
use super::list::{is_on, observe};
use super::uninterrupted::Uninterrupted;
use crate::abi::*;
use crate::verbs::caller::program_call;
use crate::verbs::{notify, poll, post, put, wr_api};
use core::ffi::c_int;

/// Puts the instrumented entry points into a context's table, if an instrument is on.
pub fn replace(ops: &mut ibv_context_ops) {
    if is_on() {
        ops.poll_cq = Some(poll_cq);
        ops.req_notify_cq = Some(req_notify_cq);
        ops.post_send = Some(post_send);
        ops.post_recv = Some(post_recv);
        ops.post_srq_recv = Some(post_srq_recv);
    }
}

/// Puts the instrumented entry points into an extended CQ.
pub fn replace_cq(c: &mut ibv_cq_ex) {
    if is_on() {
        c.start_poll = Some(start_poll);
        c.next_poll = Some(next_poll);
    }
}

/// Puts the instrumented entry points into an extended queue pair.
pub fn replace_qp(c: &mut ibv_qp_ex) {
    if is_on() {
        c.wr_start = Some(wr_start);
        c.wr_complete = Some(wr_complete);
    }
}

/// An entry point that passes its return address and its caller's frame pointer as additional
/// arguments.
macro_rules! with_address {
    ($name:ident($($arg:ident: $ty:ty),*) -> $answer:ty => $to:ident, $x86:literal, $x86_frame:literal, $arm:literal, $arm_frame:literal) => {
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $answer {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(
                concat!("mov ", $x86, ", [rsp]"),
                concat!("mov ", $x86_frame, ", rbp"),
                "jmp {to}",
                to = sym $to
            );
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(
                concat!("mov ", $arm, ", x30"),
                concat!("mov ", $arm_frame, ", x29"),
                "b {to}",
                to = sym $to
            );
        }
    };
}

with_address!(poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) -> c_int => poll_at, "rcx", "r8", "x3", "x4");
with_address!(req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int => arm_at, "rdx", "rcx", "x2", "x3");
with_address!(
    post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int => post_at, "rcx", "r8", "x3", "x4"
);
with_address!(
    post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int => receive_at, "rcx", "r8", "x3", "x4"
);
with_address!(
    post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int => share_at, "rcx", "r8", "x3", "x4"
);
with_address!(
    start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int => start_poll_at, "rdx", "rcx", "x2", "x3"
);
with_address!(next_poll(cq: *mut ibv_cq_ex) -> c_int => next_poll_at, "rsi", "rdx", "x1", "x2");
with_address!(wr_start(qp: *mut ibv_qp_ex) -> () => start_chain_at, "rsi", "rdx", "x1", "x2");
with_address!(wr_complete(qp: *mut ibv_qp_ex) -> c_int => complete_chain_at, "rsi", "rdx", "x1", "x2");

/// Makes a call of the data path, surrounded by the instruments. Such a call never waits.
///
/// # Safety
/// As [`Call::returning_to`].
unsafe fn observed(
    what: What<'_>,
    (return_address, frame): (usize, usize),
    mut plain: impl FnMut() -> CallOutcome,
) -> CallOutcome {
    let _part = Uninterrupted::begin();
    // SAFETY: the caller's promise.
    let call = unsafe { Call::returning_to(return_address, frame, what) };
    observe(&call, &mut plain)
}

unsafe extern "C" fn poll_at(
    cq: *mut ibv_cq,
    n: c_int,
    wc: *mut ibv_wc,
    address: usize,
    frame: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let plain = || CallOutcome::number(unsafe { poll::poll_cq(cq, n, wc) });
    // SAFETY: as above.
    unsafe { observed(What::Poll { cq, wc }, (address, frame), plain) }.code()
}

unsafe extern "C" fn arm_at(
    cq: *mut ibv_cq,
    solicited_only: c_int,
    address: usize,
    frame: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let address = unsafe { program_call(address, frame) } + 1;
    // SAFETY: as above.
    let plain = || CallOutcome::number(unsafe { notify::arm(cq, solicited_only, address) });
    // SAFETY: as above.
    unsafe {
        observed(What::Arm { cq, solicited_only: solicited_only != 0 }, (address, frame), plain)
    }
    .code()
}

/// Makes a post, surrounded by the instruments. `plain` gets a place for the first request that is
/// not accepted.
///
/// # Safety
/// As [`Call::returning_to`]; `bad` is null or a valid place.
unsafe fn posted<T>(
    what: What<'_>,
    bad: *mut *mut T,
    address: (usize, usize),
    plain: impl Fn(*mut *mut T) -> c_int,
) -> c_int {
    let plain = || {
        let mut refused = core::ptr::null_mut();
        let result = plain(&raw mut refused);
        CallOutcome::post(result, refused)
    };
    // SAFETY: the caller's promise.
    let outcome = unsafe { observed(what, address, plain) };
    if outcome.code() != 0 {
        // SAFETY: the caller's promise.
        unsafe { put(bad, outcome.refused as *mut T) };
    }
    outcome.code()
}

unsafe extern "C" fn post_at(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    address: usize,
    frame: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        posted(What::PostSend { qp, wr }, bad, (address, frame), |bad| post::post_send(qp, wr, bad))
    }
}

unsafe extern "C" fn receive_at(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    address: usize,
    frame: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        posted(What::PostRecv { qp, wr }, bad, (address, frame), |bad| post::post_recv(qp, wr, bad))
    }
}

unsafe extern "C" fn share_at(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    address: usize,
    frame: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        posted(What::PostSrqRecv { srq, wr }, bad, (address, frame), |bad| {
            post::post_srq_recv(srq, wr, bad)
        })
    }
}

unsafe extern "C" fn start_poll_at(
    cq: *mut ibv_cq_ex,
    attr: *mut ibv_poll_cq_attr,
    address: usize,
    frame: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let plain = || CallOutcome::number(unsafe { poll::start_poll(cq, attr) });
    // SAFETY: as above.
    unsafe { observed(What::StartPoll { cq }, (address, frame), plain) }.code()
}

unsafe extern "C" fn next_poll_at(cq: *mut ibv_cq_ex, address: usize, frame: usize) -> c_int {
    // SAFETY: the caller's promise.
    let plain = || CallOutcome::number(unsafe { poll::next_poll(cq) });
    // SAFETY: as above.
    unsafe { observed(What::NextPoll { cq }, (address, frame), plain) }.code()
}

unsafe extern "C" fn start_chain_at(qp: *mut ibv_qp_ex, address: usize, frame: usize) {
    let plain = || {
        // SAFETY: the caller's promise.
        unsafe { wr_api::wr_start(qp) };
        CallOutcome::number(0)
    };
    // SAFETY: as above.
    unsafe { observed(What::StartChain { qp }, (address, frame), plain) };
}

unsafe extern "C" fn complete_chain_at(qp: *mut ibv_qp_ex, address: usize, frame: usize) -> c_int {
    let mut called = false;
    let plain = || {
        called = true;
        // SAFETY: the caller's promise.
        CallOutcome::number(unsafe { wr_api::wr_complete(qp) })
    };
    // SAFETY: as above.
    let outcome = unsafe { observed(What::CompleteChain { qp }, (address, frame), plain) };
    if !called {
        // SAFETY: the caller's promise; a refused chain is forgotten.
        unsafe { wr_api::wr_abort(qp) };
    }
    outcome.code()
}
