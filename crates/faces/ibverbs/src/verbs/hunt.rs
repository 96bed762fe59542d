//! The data path of a program that is hunted (`adverb hunt`): the same calls, with the place in the
//! program that makes them. Programs that are not have the plain ones in their tables, and pay
//! nothing.
use super::{check, notify, poll, post, put, wr_api};
use crate::abi::*;
use crate::handles::{hot, session, this_thread};
use crate::objects::CqObj;
use adverb_choice::Call;
use adverb_device::cq::hunt;
use adverb_device::engine::{Completion, WcFlags, WcOpcode, WcStatus};
use core::ffi::c_int;

/// Puts the calls of a hunt into a context's table, if there is one.
pub fn replace(ops: &mut ibv_context_ops) {
    if hunt::hunt().is_some() {
        ops.poll_cq = Some(poll_cq);
        ops.req_notify_cq = Some(req_notify_cq);
        ops.post_send = Some(post_send);
        ops.post_recv = Some(post_recv);
        // A process that is checked as well calls these from its own.
        if check::check().is_none() {
            check::set_extend(extend_cq, extend_qp);
        }
    }
}

/// Has an extended CQ tell where it is polled.
fn extend_cq(c: &mut ibv_cq_ex) {
    c.start_poll = Some(start_poll);
    c.next_poll = Some(next_poll);
}

/// Has an extended queue pair tell where it is posted to.
fn extend_qp(c: &mut ibv_qp_ex) {
    c.wr_complete = Some(wr_complete);
}

/// An entry point that passes its return address as one more argument.
macro_rules! with_address {
    ($name:ident($($arg:ident: $ty:ty),*) => $to:ident, $x86:literal, $arm:literal) => {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        #[unsafe(naked)]
        unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!(concat!("mov ", $x86, ", [rsp]"), "jmp {to}", to = sym $to);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!(concat!("mov ", $arm, ", x30"), "b {to}", to = sym $to);
        }

        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the caller's promise.
            unsafe { $to($($arg,)* 0) }
        }
    };
}

pub(super) use with_address;

with_address!(poll_cq(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc) => poll_at, "rcx", "x3");
with_address!(req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) => arm_at, "rdx", "x2");
with_address!(
    post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) => post_at, "rcx", "x3"
);

with_address!(
    post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) => receive_at, "rcx", "x3"
);
with_address!(
    start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) => start_at, "rdx", "x2"
);
with_address!(next_poll(cq: *mut ibv_cq_ex) => next_at, "rsi", "x1");
with_address!(wr_complete(qp: *mut ibv_qp_ex) => complete_at, "rsi", "x1");

pub(super) unsafe extern "C" fn poll_at(cq: *mut ibv_cq, n: c_int, wc: *mut ibv_wc, address: usize) -> c_int {
    let address = address.wrapping_sub(1);
    let queue = hot(cq).ok().map(|obj| obj.cq.clone());
    // SAFETY: the caller's promise.
    let found = unsafe { poll::poll_cq(cq, n, wc) };
    if let (Some(queue), Ok(found)) = (queue, usize::try_from(found)) {
        for i in 0..found {
            // SAFETY: so many were written.
            let wc = unsafe { &mut *wc.add(i) };
            if wc.status != IBV_WC_SUCCESS
                && let Some(garbage) = queue.hunt_failed(address)
            {
                scramble(wc, garbage);
            }
        }
        queue.hunt_found(address, found);
    }
    found
}

/// Of a failed completion `wr_id`, `status`, `qp_num` and `vendor_err` are defined and nothing
/// else.
pub(super) fn scramble(wc: &mut ibv_wc, garbage: u64) {
    let [low, high] = [garbage as u32, (garbage >> 32) as u32];
    // A kind of request that it was not, now and then of the other direction.
    wc.opcode = [IBV_WC_SEND, IBV_WC_RECV, IBV_WC_RDMA_WRITE, IBV_WC_RECV_RDMA_WITH_IMM][low as usize % 4];
    wc.byte_len = high | 1;
    wc.imm_data = low ^ high;
    wc.src_qp = high >> 8;
    wc.wc_flags = low >> 28;
    wc.slid = low as u16;
    wc.sl = high as u8;
    wc.dlid_path_bits = low as u8;
}

pub(super) unsafe extern "C" fn arm_at(cq: *mut ibv_cq, solicited_only: c_int, address: usize) -> c_int {
    // SAFETY: the caller's promise.
    let arm = || unsafe { notify::arm(cq, solicited_only, address) };
    match hot(cq).ok().map(|obj| obj.cq.clone()) {
        Some(queue) => queue.hunt_arm(address.wrapping_sub(1), arm),
        None => arm(),
    }
}

pub(super) unsafe extern "C" fn post_at(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
    address: usize,
) -> c_int {
    let mut called = false;
    let mut post = || {
        called = true;
        // SAFETY: the caller's promise.
        unsafe { post::post_send(qp, wr, bad) }
    };
    let result = match hot(qp).ok().map(|obj| obj.qp.clone()) {
        Some(queue_pair) => queue_pair.hunt_post(address.wrapping_sub(1), post),
        None => post(),
    };
    if !called {
        // SAFETY: the program's place; the first request was not taken.
        unsafe { put(bad, wr) };
    }
    result
}

pub(super) unsafe extern "C" fn receive_at(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    address: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    let post = || unsafe { post::post_recv(qp, wr, bad) };
    match hot(qp).ok().map(|obj| obj.qp.clone()) {
        Some(queue_pair) => queue_pair.context().hunt_call(Call::Receive, address.wrapping_sub(1), post),
        None => post(),
    }
}

unsafe extern "C" fn start_at(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr, address: usize) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { poll::start_poll(cq, attr) };
    // SAFETY: if it has found something, this thread polls.
    unsafe { found_by(cq, result, address.wrapping_sub(1)) };
    result
}

unsafe extern "C" fn next_at(cq: *mut ibv_cq_ex, address: usize) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { poll::next_poll(cq) };
    // SAFETY: as above.
    unsafe { found_by(cq, result, address.wrapping_sub(1)) };
    result
}

/// An extended poll has answered.
///
/// # Safety
/// With 0, this thread polls the queue, and is between start and end.
pub(super) unsafe fn found_by(cq: *mut ibv_cq_ex, result: c_int, address: usize) {
    let Some(queue) = hot(cq).ok().map(|obj| obj.cq.clone()) else { return };
    match result {
        0 => queue.hunt_found(address, 1),
        libc::ENOENT => return queue.hunt_found(address, 0),
        _ => return,
    }
    let Some(obj) = session(cq, this_thread()) else { return };
    let obj: &CqObj = &obj;
    // SAFETY: between start and end this thread is the only user.
    if let Some(c) = unsafe { (*obj.current.get()).as_mut() }
        && c.status != WcStatus::Success
        && let Some(garbage) = queue.hunt_failed(address)
    {
        scramble_current(c, garbage);
    }
}

/// As [`scramble`], of the completion that an extended poll shows.
pub(super) fn scramble_current(c: &mut Completion, garbage: u64) {
    let [low, high] = [garbage as u32, (garbage >> 32) as u32];
    c.opcode =
        [WcOpcode::Send, WcOpcode::Recv, WcOpcode::RdmaWrite, WcOpcode::RecvRdmaWithImm][low as usize % 4];
    c.byte_len = high | 1;
    c.imm = low ^ high;
    c.src_qpn = high >> 8;
    c.flags = WcFlags::from_bits_truncate(low >> 28);
    c.sl = high as u8;
}

pub(super) unsafe extern "C" fn complete_at(qp: *mut ibv_qp_ex, address: usize) -> c_int {
    let mut called = false;
    let mut complete = || {
        called = true;
        // SAFETY: the caller's promise.
        unsafe { wr_api::wr_complete(qp) }
    };
    let result = match hot(qp).ok().map(|obj| obj.qp.clone()) {
        Some(queue_pair) => queue_pair.hunt_post(address.wrapping_sub(1), complete),
        None => complete(),
    };
    if !called {
        // SAFETY: the caller's promise; a chain that is refused is forgotten.
        unsafe { wr_api::wr_abort(qp) };
    }
    result
}
