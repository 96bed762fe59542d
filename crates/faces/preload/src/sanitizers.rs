//! What the run-time libraries of sanitizers ask the program at start: they call these functions if
//! anybody defines them, and take the answer for less than what the user says in `ASAN_OPTIONS` and
//! its like. A program that defines them itself is asked instead.
//!
//! They are called before anything is initialised, so they do nothing but answer.

use core::ffi::{CStr, c_char};

/// The names that this module defines.
pub const NAMES: &[&str] =
    &["__asan_default_options", "__tsan_default_suppressions", "__lsan_default_suppressions"];

/// AddressSanitizer refuses to start if anything is loaded before its run-time library, unless it
/// is told that this is meant.
const ASAN: &CStr = c"verify_asan_link_order=0";

/// The drop-in library is not compiled for ThreadSanitizer, which sees its calls of `memcpy` and
/// `free` and none of the locks and atomics that order them. Without this it would report each as a
/// data race.
const TSAN: &str = concat!(include_str!("tsan.supp"), "\0");

/// LeakSanitizer does not look into memory that the device maps by itself, and takes blocks that
/// only this memory refers to for lost.
const LSAN: &CStr = c"leak:libibverbs.so\n";

/// The function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload___asan_default_options() -> *const c_char {
    ASAN.as_ptr()
}

/// The function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload___tsan_default_suppressions() -> *const c_char {
    TSAN.as_ptr().cast()
}

/// The function of this name.
#[unsafe(no_mangle)]
pub extern "C" fn adverb_preload___lsan_default_suppressions() -> *const c_char {
    LSAN.as_ptr()
}
