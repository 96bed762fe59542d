//! The data path of a program that is hunted (`adverb hunt`): the same calls, with the place in the
//! program that makes them. Programs that are not have the plain ones in their tables, and pay
//! nothing.
use super::{notify, poll, post};
use crate::abi::*;
use crate::handles::hot;
use adverb_device::cq::hunt;
use core::ffi::c_int;

/// Puts the calls of a hunt into a context's table, if there is one.
pub fn replace(ops: &mut ibv_context_ops) {
    if hunt::hunt().is_some() {
        ops.poll_cq = Some(poll_cq);
        ops.req_notify_cq = Some(req_notify_cq);
        ops.post_send = Some(post_send);
    }
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

unsafe extern "C" fn arm_at(cq: *mut ibv_cq, solicited_only: c_int, address: usize) -> c_int {
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
    // SAFETY: the caller's promise.
    let post = || unsafe { post::post_send(qp, wr, bad) };
    match hot(qp).ok().map(|obj| obj.qp.clone()) {
        Some(queue_pair) => queue_pair.hunt_post(address.wrapping_sub(1), post),
        None => post(),
    }
}
