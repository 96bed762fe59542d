//! `madvise`, seen by whoever has to know that memory was given up.
//!
//! The device shares a program's registered memory with peers through a file, where `MADV_DONTNEED` and its like do not make zeroes,
//! as they do on private memory and as allocators expect. It leaves a hook here that sets that right.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::real::{errno, set_errno};

/// Called after `madvise` with its arguments and its errno, 0 for success; the answer is the errno that the program gets.
pub type Hook = unsafe extern "C" fn(addr: u64, len: usize, advice: c_int, errno: c_int) -> c_int;

/// The names that this module defines.
pub const NAMES: &[&str] = &["madvise", "adverb_madvise_hook"];

static HOOK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Calls that set memory apart at `fork`.
static SPECIAL: AtomicU64 = AtomicU64::new(0);

/// The function of this name: the kernel's answer, and what the hook makes of it.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    if matches!(advice, libc::MADV_DONTFORK | libc::MADV_WIPEONFORK) {
        SPECIAL.fetch_add(1, Ordering::Relaxed);
    }
    let before = errno();
    // SAFETY: the caller's arguments. Not through the C library: its function of this name does just this.
    let failed = unsafe { libc::syscall(libc::SYS_madvise, addr, len, advice) } != 0;
    let hook = HOOK.load(Ordering::Acquire);
    if hook.is_null() {
        return if failed { -1 } else { 0 };
    }
    // SAFETY: only hooks are stored.
    let hook: Hook = unsafe { core::mem::transmute(hook) };
    // SAFETY: who left the hook said that it may be called with any arguments.
    match unsafe { hook(addr as u64, len, advice, if failed { errno() } else { 0 }) } {
        0 => {
            set_errno(before);
            0
        }
        errno => {
            set_errno(errno);
            -1
        }
    }
}

/// Leaves a hook; answers how often memory was set apart at `fork` so far.
///
/// # Safety
/// The hook may be called at any time, in any thread, under any lock, with any arguments, as long as the process lives.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_adverb_madvise_hook(hook: Option<Hook>) -> u64 {
    HOOK.store(hook.map_or(core::ptr::null_mut(), |hook| hook as *mut c_void), Ordering::Release);
    SPECIAL.load(Ordering::Relaxed)
}
