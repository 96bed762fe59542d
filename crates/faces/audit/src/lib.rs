//! An auditor of the dynamic loader (`rtld-audit(7)`), which `adverb run --replace` names in
//! `LD_AUDIT`.
//!
//! Programs bring their own libibverbs: Python wheels under a name with a hash
//! (`libibverbs-1a2b3c4d.so.1`) that only their own path leads to, others by an absolute path. The
//! loader asks an auditor about each file it is about to open, whatever led there: a needed
//! library, a run path, `dlopen`. Here such a copy is answered by the drop-in library of the
//! directory in `ADVERB_REPLACE`; all else stays. The loader keeps the copy's name for the library
//! it gets, so versions that were asked of that name are found, and it loads the drop-in once
//! however often it is asked.
//!
//! The loader reserves memory for thread-local variables before it loads an auditor, and leaves
//! only a little for libraries that it loads afterwards. So this is for programs that need it.
//!
//! Neither calls nor symbols are looked at, so the loader binds functions as it does without an
//! auditor (glibc 2.35 and later; an earlier one takes longer for calls it binds lazily).
//!
//! It needs nothing, no C library either: an auditor gets copies of its own of everything it needs.
#![allow(unsafe_code, reason = "the loader's interface, and system calls without a C library")]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "Adverb runs on Linux on x86-64 and aarch64 alone: it makes system calls and has calling conventions of these"
);

mod environment;
mod kernel;

use core::ffi::{c_char, c_uint};
use core::sync::atomic::{AtomicBool, Ordering};

use adverb_copies::library;
use environment::Directory;

/// The directory, once it is known.
static DIRECTORY: Directory = Directory::new();
static KNOWN: AtomicBool = AtomicBool::new(false);

/// The loader's first question: which version of the interface is spoken; all versions have what is
/// here.
///
/// Where the directory cannot be learned, without `/proc` for one, every file stays as it is.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(version: c_uint) -> c_uint {
    KNOWN.store(DIRECTORY.read(), Ordering::Release);
    version
}

/// What is to be opened in place of `name`.
///
/// # Safety
/// `name` is a string. The answer is it, or lives as long as the process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn la_objsearch(
    name: *const c_char,
    _cookie: *mut usize,
    _flag: c_uint,
) -> *const c_char {
    if name.is_null() || !KNOWN.load(Ordering::Acquire) {
        return name;
    }
    // SAFETY: the loader passes a string.
    let bytes = unsafe { kernel::bytes(name) };
    let Some(library) = library(bytes) else { return name };
    let ours = DIRECTORY.file(library);
    // Only where the loader would have found something: it goes on looking otherwise, and says what
    // it always says.
    if kernel::exists(name) && kernel::exists(ours) { ours } else { name }
}
