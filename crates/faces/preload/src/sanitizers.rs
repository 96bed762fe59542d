//! Default options for sanitizers. Their run-time libraries call these functions at start, if the
//! functions exist. The user's options in `ASAN_OPTIONS` and similar variables take precedence. If
//! the program defines a function itself, the program's function is called instead.
//!
//! The calls come before any initialisation, so the functions only return a constant.

use core::ffi::{CStr, c_char};

/// AddressSanitizer refuses to start if an object is loaded before its run-time library, unless
/// this option permits it.
const ASAN: &CStr = c"verify_asan_link_order=0";

/// The drop-in library is not compiled for ThreadSanitizer. ThreadSanitizer sees the library's
/// calls of `memcpy` and `free`, but not the locks and atomics that order these calls. Without this
/// suppression, each such call would be reported as a data race.
const TSAN: &str = concat!(include_str!("tsan.supp"), "\0");

/// LeakSanitizer does not search memory that the device maps itself. It would report blocks as lost
/// if only this memory refers to them.
const LSAN: &CStr = c"leak:libibverbs.so\n";

#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload___asan_default_options() -> *const c_char {
    ASAN.as_ptr()
}

#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload___tsan_default_suppressions() -> *const c_char {
    TSAN.as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload___lsan_default_suppressions() -> *const c_char {
    LSAN.as_ptr()
}
