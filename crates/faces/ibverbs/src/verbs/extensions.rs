//! Functions that the verbs interface does not have (EXT-1, EXT-3, EXT-4): those of
//! `include/adverb.h`.
use crate::abi::*;
use crate::errno;
use crate::handles::{hot, live};
use crate::verbs::notify::site_before;
use crate::verbs::poll::wc_of;
use crate::verbs::{done, failed};
use adverb_device::engine::cq::arm::ArmKind;
use core::ffi::{c_int, c_uint};

/// `ADVERB_NOTIFY_PERSISTENT`.
const PERSISTENT: c_uint = 1;

/// Copies completions and leaves them in the queue (EXT-1). Returns how many, or a negative errno
/// value.
pub unsafe extern "C" fn adverb_peek_cq(
    cq: *mut ibv_cq,
    num_entries: c_int,
    wc: *mut ibv_wc,
) -> c_int {
    let obj = match hot(cq) {
        Ok(obj) => obj,
        Err(e) => return -failed("adverb_peek_cq", &e),
    };
    let Ok(max) = usize::try_from(num_entries) else { return -errno::code(libc::EINVAL) };
    let mut out = wc;
    let n = obj.cq.peek(max, |c| {
        // SAFETY: the program passes room for `num_entries`, and `peek` calls this at most that
        // many times.
        unsafe {
            out.write(wc_of(c));
            out = out.add(1);
        }
    });
    n as c_int
}

/// Arms once, or until the arm is taken back (EXT-3). Passes its return address on, like
/// `ibv_req_notify_cq` (EXT-4).
#[unsafe(naked)]
pub unsafe extern "C" fn adverb_notify_cq(cq: *mut ibv_cq, kind: c_uint, flags: c_uint) -> c_int {
    // The three arguments stay in their registers. The fourth receives the return address. The
    // called function returns directly to that address.
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rcx, [rsp]", "jmp {arm}", arm = sym arm);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x3, x30", "b {arm}", arm = sym arm);
}

unsafe extern "C" fn arm(
    cq: *mut ibv_cq,
    kind: c_uint,
    flags: c_uint,
    return_address: usize,
) -> c_int {
    let obj = match hot(cq) {
        Ok(obj) => obj,
        Err(e) => return failed("adverb_notify_cq", &e),
    };
    let kind = match kind {
        0 => ArmKind::Next,
        1 => ArmKind::Solicited,
        2 => ArmKind::Errors,
        _ => return errno::code(libc::EINVAL),
    };
    let armed = match flags {
        0 => obj.cq.req_notify_at(kind, site_before(return_address)),
        PERSISTENT => obj.cq.notify_persistent_at(kind, site_before(return_address)),
        _ => return errno::code(libc::EINVAL),
    };
    done("adverb_notify_cq", armed)
}

/// Takes a pending arm back.
pub unsafe extern "C" fn adverb_disarm_cq(cq: *mut ibv_cq) -> c_int {
    done("adverb_disarm_cq", hot(cq).map(|obj| obj.cq.disarm()))
}

/// The number of completions in a channel's queues that no event will report (EXT-4).
pub unsafe extern "C" fn adverb_overlooked(channel: *mut ibv_comp_channel) -> c_int {
    let obj = match live(channel) {
        Ok(obj) => obj,
        Err(e) => return -failed("adverb_overlooked", &e),
    };
    obj.lost_wakeups().iter().map(|o| o.waiting as c_int).sum()
}
