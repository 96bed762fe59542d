//! Errors: internal functions return an errno value; exported functions return -1 or null and set
//! `errno`.

use core::ffi::c_int;

/// An errno value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub c_int);

/// The result type of most functions.
pub type ErrnoResult<T = ()> = Result<T, Errno>;

impl Errno {
    /// The value of `errno` after a failed call of the C library or of verbs; never zero.
    pub fn last() -> Self {
        // SAFETY: the C library returns the address of this thread's `errno`.
        let code = unsafe { *libc::__errno_location() };
        Self(if code == 0 { libc::EIO } else { code })
    }

    /// Sets `errno`.
    pub fn set(self) {
        // SAFETY: the C library returns the address of this thread's `errno`.
        unsafe { *libc::__errno_location() = self.0 }
    }
}

/// The pointer, or EINVAL for null.
pub fn non_null<T>(pointer: *mut T) -> ErrnoResult<*mut T> {
    if pointer.is_null() { Err(Errno(libc::EINVAL)) } else { Ok(pointer) }
}

/// ENOMEM if the process has no memory for a new object.
pub fn ready() -> ErrnoResult {
    if adverb_reserve::is_ready() { Ok(()) } else { Err(Errno(libc::ENOMEM)) }
}

/// The result of a verb that returns an error number.
pub fn checked(code: c_int) -> ErrnoResult {
    match code {
        0 => Ok(()),
        // Some verbs return -1 and set errno.
        code if code < 0 => Err(Errno::last()),
        code => Err(Errno(code)),
    }
}

/// 0, or -1 with `errno` set.
pub fn zero_or_minus_one(outcome: ErrnoResult) -> c_int {
    match outcome {
        Ok(()) => 0,
        Err(why) => {
            why.set();
            -1
        }
    }
}

/// The pointer, or null with `errno` set.
pub fn or_null<T>(outcome: ErrnoResult<*mut T>) -> *mut T {
    outcome.unwrap_or_else(|why| {
        why.set();
        core::ptr::null_mut()
    })
}
