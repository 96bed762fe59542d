//! The instrumented entry points of the data path. Each surrounds the plain entry point with the
//! instruments of the list.
use super::call::{Call, CallOutcome, What};
use super::list::{is_on, observe};
use super::uninterrupted::Uninterrupted;
use crate::abi::*;
use crate::verbs::caller::{Caller, program_call};
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

/// The instructions that pass return address and frame pointer of the caller as arguments, behind
/// so many other arguments.
macro_rules! caller_behind {
    (1) => {
        by_processor!("mov rsi, [rsp]\nmov rdx, rbp", "mov x1, x30\nmov x2, x29")
    };
    (2) => {
        by_processor!("mov rdx, [rsp]\nmov rcx, rbp", "mov x2, x30\nmov x3, x29")
    };
    (3) => {
        by_processor!("mov rcx, [rsp]\nmov r8, rbp", "mov x3, x30\nmov x4, x29")
    };
}

/// Defines entry points of the data path: `name(number of arguments: arguments) -> answer, |caller|
/// what is done`.
macro_rules! entry_points {
    ($($name:ident($count:tt: $($arg:ident: $ty:ty),*) -> $answer:ty, |$caller:ident| $body:expr;)*) => { $(
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> $answer {
            unsafe extern "C" fn of($($arg: $ty,)* return_address: usize, frame: usize) -> $answer {
                let $caller = Caller { return_address, frame };
                // SAFETY: the caller's promise.
                unsafe { $body }
            }
            core::arch::naked_asm!(caller_behind!($count), by_processor!("jmp {of}", "b {of}"), of = sym of)
        }
    )* };
}

entry_points! {
    poll_cq(3: cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) -> c_int, |caller| {
        let plain = || CallOutcome::number(poll::poll_cq(cq, n, wc));
        observed(What::Poll { cq, wc }, caller, plain).code()
    };
    req_notify_cq(2: cq: *mut ibv_cq, solicited_only: c_int) -> c_int, |caller| {
        let caller = Caller { return_address: program_call(caller) + 1, ..caller };
        let plain = || CallOutcome::number(notify::arm(cq, solicited_only, caller.return_address));
        observed(What::Arm { cq, solicited_only: solicited_only != 0 }, caller, plain).code()
    };
    post_send(3: qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int, |caller| {
        posted(What::PostSend { qp, wr }, bad, caller, |bad| post::post_send(qp, wr, bad))
    };
    post_recv(3: qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int, |caller| {
        posted(What::PostRecv { qp, wr }, bad, caller, |bad| post::post_recv(qp, wr, bad))
    };
    post_srq_recv(3: srq: *mut ibv_srq, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> c_int, |caller| {
        posted(What::PostSrqRecv { srq, wr }, bad, caller, |bad| post::post_srq_recv(srq, wr, bad))
    };
    start_poll(2: cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int, |caller| {
        let plain = || CallOutcome::number(poll::start_poll(cq, attr));
        observed(What::StartPoll { cq }, caller, plain).code()
    };
    next_poll(1: cq: *mut ibv_cq_ex) -> c_int, |caller| {
        observed(What::NextPoll { cq }, caller, || CallOutcome::number(poll::next_poll(cq))).code()
    };
    wr_start(1: qp: *mut ibv_qp_ex) -> (), |caller| {
        let plain = || {
            wr_api::wr_start(qp);
            CallOutcome::number(0)
        };
        observed(What::StartChain { qp }, caller, plain);
    };
    wr_complete(1: qp: *mut ibv_qp_ex) -> c_int, |caller| {
        let mut called = false;
        let plain = || {
            called = true;
            CallOutcome::number(wr_api::wr_complete(qp))
        };
        let outcome = observed(What::CompleteChain { qp }, caller, plain);
        // A refused chain is forgotten.
        if !called {
            wr_api::wr_abort(qp);
        }
        outcome.code()
    };
}

/// Makes a call of the data path, surrounded by the instruments. Such a call never waits.
///
/// # Safety
/// As [`Call::of`].
unsafe fn observed(
    what: What<'_>,
    caller: Caller,
    mut plain: impl FnMut() -> CallOutcome,
) -> CallOutcome {
    let _part = Uninterrupted::begin();
    // SAFETY: the caller's promise.
    let call = unsafe { Call::of(caller, what) };
    observe(&call, &mut plain)
}

/// Makes a post, surrounded by the instruments. `plain` gets a place for the first request that is
/// not accepted.
///
/// # Safety
/// As [`Call::of`]; `bad` is null or a valid place.
unsafe fn posted<T>(
    what: What<'_>,
    bad: *mut *mut T,
    caller: Caller,
    plain: impl Fn(*mut *mut T) -> c_int,
) -> c_int {
    let plain = || {
        let mut refused = core::ptr::null_mut();
        let result = plain(&raw mut refused);
        CallOutcome::post(result, refused)
    };
    // SAFETY: the caller's promise.
    let outcome = unsafe { observed(what, caller, plain) };
    if outcome.code() != 0 {
        // SAFETY: the caller's promise.
        unsafe { put(bad, outcome.refused as *mut T) };
    }
    outcome.code()
}
