//! Passes growing and moving of mappings to the device. (The bodies are separate functions: see
//! `advise`.)

use core::ffi::{c_int, c_void};

use super::functions::MREMAP;
use super::hooks::hooks;
use crate::real::{call, errno, set_errno};

/// Replaces the C library's function of this name. The fifth argument exists only if the flags need
/// it. If the caller passes none, the value read here is passed on and not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_mremap(
    addr: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    // SAFETY: the caller's arguments.
    unsafe { remap(addr, old, new, flags, to) }
}

/// The body of `mremap`.
#[inline(never)]
pub(super) unsafe fn remap(
    addr: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    if let Some(hooks) = hooks() {
        let before = errno();
        let got = (hooks.remap)(addr as u64, old as u64, new as u64, flags, to as u64);
        set_errno(if got < 0 { -got as c_int } else { before });
        return if got < 0 { libc::MAP_FAILED } else { got as *mut c_void };
    }
    call!(MREMAP: fn(
        addr => *mut c_void, old => usize, new => usize, flags => c_int, to => *mut c_void) -> *mut c_void)
}
