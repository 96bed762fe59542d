//! `_exit` and `abort`, which end a process without calling anybody: a device that checks its
//! program asks to be told before.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::real::{real, reals};

/// The names interposed.
pub const NAMES: &[&str] = &["_exit", "_Exit", "abort", "adverb_exit_hook"];

reals! {
    EXIT = c"_exit";
    ABORT = c"abort";
}

/// Is told the status, and answers the one to end with.
type Hook = extern "C" fn(c_int) -> c_int;

static HOOK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Looks the C library's function up.
pub fn look_up() {
    for real in REALS {
        real.get();
    }
}

/// Leaves a function to be called before the process ends by `_exit`. It lives as long as the
/// process.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload_adverb_exit_hook(hook: Hook) {
    HOOK.store(hook as *mut c_void, Ordering::Release);
}

fn tell(status: c_int) -> c_int {
    let hook = HOOK.load(Ordering::Acquire);
    if hook.is_null() {
        return status;
    }
    // SAFETY: only functions of this type are stored.
    unsafe { core::mem::transmute::<*mut c_void, Hook>(hook)(status) }
}

fn end(status: c_int) -> ! {
    let status = tell(status);
    if let Some(real) = real!(EXIT: fn(c_int)) {
        // SAFETY: any status.
        unsafe { real(status) };
    }
    loop {
        // SAFETY: a plain system call, which does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

/// The function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload__exit(status: c_int) -> ! {
    end(status)
}

/// The function of this name, which is another name of the same.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload__Exit(status: c_int) -> ! {
    end(status)
}

/// The function of this name: its signal ends the process with 128 and the signal's number, as
/// shells count.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload_abort() -> ! {
    tell(128 + libc::SIGABRT);
    if let Some(real) = real!(ABORT: fn()) {
        // SAFETY: nothing is asked of the caller.
        unsafe { real() };
    }
    end(128 + libc::SIGABRT)
}
