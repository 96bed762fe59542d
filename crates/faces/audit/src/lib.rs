//! An auditor of the dynamic loader (`rtld-audit(7)`), which `adverb run --replace` names in
//! `LD_AUDIT`.
//!
//! Some programs bring a copy of libibverbs. Python wheels have a copy under a name with a hash
//! (`libibverbs-1a2b3c4d.so.1`), which only the wheel's run path leads to. Other programs use an
//! absolute path. The loader asks an auditor about each file before it opens the file: for a needed
//! library, a run path or `dlopen`. For such a copy, this auditor returns the drop-in library of
//! the directory in `ADVERB_REPLACE`. All other files stay. The loader keeps the copy's name for
//! the drop-in, so the loader finds versions that were requested of this name. The loader also
//! loads the drop-in only once.
//!
//! The loader reserves memory for thread-local variables before it loads an auditor, and leaves
//! only little for later libraries. So `adverb run` uses the auditor only on request.
//!
//! The auditor looks at neither calls nor symbols, so the loader binds functions as without an
//! auditor. This holds for glibc 2.35 and later. With an earlier glibc, lazily bound calls take
//! longer.
//!
//! The auditor needs no other library, not even a C library, because the loader would load a second
//! copy of each needed library for it.
#![allow(unsafe_code, reason = "the loader's interface, and system calls without a C library")]

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!(
    "Adverb runs on Linux on x86-64 and aarch64 alone: it makes system calls and has calling conventions of these"
);

mod environment;
mod kernel;

use core::ffi::{c_char, c_uint};
use core::sync::atomic::{AtomicBool, Ordering};

use adverb_text::copies::library;
use environment::Directory;

/// The directory; valid when `KNOWN` is set.
static DIRECTORY: Directory = Directory::new();
static KNOWN: AtomicBool = AtomicBool::new(false);

/// The first call of the loader, which negotiates the version of the interface. All versions have
/// the functions of this auditor.
///
/// If the directory cannot be read, for example without `/proc`, no file is replaced.
#[unsafe(no_mangle)]
pub extern "C" fn la_version(version: c_uint) -> c_uint {
    KNOWN.store(DIRECTORY.read(), Ordering::Release);
    version
}

/// The file to open in place of `name`.
///
/// # Safety
/// `name` is a string. The result is `name`, or a string that lives as long as the process.
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
    // Replace only a file that exists. Otherwise the loader continues its search, and reports a
    // missing library as always.
    if kernel::exists(name) && kernel::exists(ours) { ours } else { name }
}
