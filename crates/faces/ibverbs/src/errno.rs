//! The ways in which a C entry point reports a failure.

use core::ffi::c_int;

/// Sets `errno`.
pub fn set(code: c_int) {
    // SAFETY: the C library returns the address of this thread's variable.
    unsafe { *libc::__errno_location() = code }
}

/// A null pointer, with `errno` set.
pub fn null<T>(code: c_int) -> *mut T {
    set(code);
    core::ptr::null_mut()
}

/// -1, with `errno` set.
pub fn minus_one(code: c_int) -> c_int {
    set(code);
    -1
}

/// An errno value as the result, with `errno` set as well, because callers look at either.
pub fn code(code: c_int) -> c_int {
    set(code);
    code
}

/// `errno` of this thread.
pub fn last() -> c_int {
    // SAFETY: as in `set`.
    unsafe { *libc::__errno_location() }
}
