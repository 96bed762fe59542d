//! `_exit` and `abort`, which end a process without running exit handlers. A device that checks its
//! program gets a call before.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::real::{real, reals};

reals! {
    EXIT = c"_exit";
    ABORT = c"abort";
}

/// Gets the exit status, and returns the status to exit with.
type Hook = extern "C" fn(c_int) -> c_int;

static HOOK: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Registers a function to call before the process ends by `_exit`. The function must stay valid as
/// long as the process.
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
        // SAFETY: any status is valid.
        unsafe { real(status) };
    }
    loop {
        // SAFETY: a plain system call, which does not return.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload__exit(status: c_int) -> ! {
    end(status)
}

/// Replaces the C library's function of this name, which is an alias of `_exit`.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload__Exit(status: c_int) -> ! {
    end(status)
}

/// Replaces the C library's function of this name. The status is 128 plus the signal's number, as
/// in shells.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload_abort() -> ! {
    tell(128 + libc::SIGABRT);
    if let Some(real) = real!(ABORT: fn()) {
        // SAFETY: the function has no requirements.
        unsafe { real() };
    }
    end(128 + libc::SIGABRT)
}
