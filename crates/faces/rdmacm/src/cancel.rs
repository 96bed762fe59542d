//! Cancellation of threads by `pthread_cancel`.
//!
//! A call can be cancelled only while it waits for an event ([`wait`]). At that moment the thread
//! holds no lock, and no value on its stack needs a destructor.

use core::cell::Cell;
use core::ffi::c_int;

const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

thread_local! {
    /// The cancellation state of the program around the current call.
    static OUTSIDE: Cell<Option<c_int>> = const { Cell::new(None) };
}

fn set_state(state: c_int) -> c_int {
    let mut old = 0;
    // SAFETY: a state of the C library, and room for the old state.
    unsafe { pthread_setcancelstate(state, &raw mut old) };
    old
}

/// Makes a call in which the thread can be cancelled only in [`wait`]. A call within a call changes
/// nothing.
pub fn only_in_waits<R>(call: impl FnOnce() -> R) -> R {
    if OUTSIDE.get().is_some() {
        return call();
    }
    OUTSIDE.set(Some(set_state(PTHREAD_CANCEL_DISABLE)));
    let result = call();
    if let Some(state) = OUTSIDE.take() {
        set_state(state);
    }
    result
}

/// Waits. The thread can be cancelled here, if the program allows it.
pub fn wait<R>(wait: impl FnOnce() -> R) -> R {
    let outside = OUTSIDE.take();
    let inside = outside.map(set_state);
    let result = wait();
    if let Some(state) = inside {
        set_state(state);
    }
    OUTSIDE.set(outside);
    result
}

/// A function with its arguments as words. A function with fewer arguments ignores the rest.
type WordFn = unsafe extern "C-unwind" fn(u64, u64, u64, u64, u64, u64) -> u64;

/// Calls the function in r11. Each exported function has at most six arguments, each a word.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn enter() {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "sub rsp, 24",
        ".cfi_def_cfa_offset 32",
        "mov [rsp], r11",
        "call {call}",
        "add rsp, 24",
        ".cfi_def_cfa_offset 8",
        "ret",
        ".cfi_endproc",
        call = sym call,
    );
}

/// Calls the function in x16. Each exported function has at most six arguments, each a word.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn enter() {
    core::arch::naked_asm!("mov x6, x16", "b {call}", call = sym call);
}

/// The seventh argument is the function: on the stack, or in x6.
unsafe extern "C-unwind" fn call(
    a: u64,
    b: u64,
    c: u64,
    d: u64,
    e: u64,
    f: u64,
    function: WordFn,
) -> u64 {
    // SAFETY: the program's arguments, unchanged, for the function with this name.
    only_in_waits(|| unsafe { function(a, b, c, d, e, f) })
}
