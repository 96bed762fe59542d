//! Forks and the end of a process with instruments.
use super::call::{Event, Fork};
use super::list::tell;
use core::ffi::{c_int, c_void};
use std::sync::Once;

unsafe extern "C" {
    fn on_exit(f: extern "C" fn(c_int, *mut c_void), arg: *mut c_void) -> c_int;
}

type AtExit = extern "C" fn(c_int) -> c_int;
type Ask = unsafe extern "C" fn(AtExit);

/// Registers handlers for forks and the end of the process.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of a library that is never unloaded.
        unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_in_parent), Some(after_in_child));
            on_exit(exits, core::ptr::null_mut());
        }
        // `_exit` calls no handler. The preloaded library calls the handler registered here.
        // SAFETY: a string; the call only looks up a name.
        let ask = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"adverb_exit_hook".as_ptr()) };
        if !ask.is_null() {
            // SAFETY: only the preloaded library defines this name, with this signature.
            let ask: Ask = unsafe { core::mem::transmute(ask) };
            // SAFETY: a function of a library that is never unloaded.
            unsafe { ask(finish) };
        }
    });
}

unsafe extern "C" fn before_fork() {
    tell(Event::Fork(Fork::Before));
}

unsafe extern "C" fn after_in_parent() {
    tell(Event::Fork(Fork::Parent));
}

unsafe extern "C" fn after_in_child() {
    tell(Event::Fork(Fork::Child));
}

extern "C" fn exits(status: c_int, _: *mut c_void) {
    let wanted = finish(status);
    if wanted != status {
        // SAFETY: glibc calls the remaining exit handlers, and then ends the process with this
        // status.
        unsafe { libc::exit(wanted) };
    }
}

/// The process ends: answers the status for the end.
extern "C" fn finish(mut status: c_int) -> c_int {
    tell(Event::Exit(&mut status));
    status
}
