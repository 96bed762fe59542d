//! `dlopen`: replaces copies of libibverbs and librdmacm that a program opens with the drop-in
//! libraries.
//!
//! If the program opens a copy by its path, this module opens the library by its plain name
//! instead, which leads to the directory of the drop-in libraries. If the program opens a module
//! (for example of Python) that needs a copy, the module uses the drop-in's symbols. The reason:
//! the drop-in is loaded with global symbols before the first file is opened by a path, and the
//! loader searches global symbols before a module's own libraries.
//!
//! The loader resolves a name relative to its caller. So this function jumps to the real function,
//! with the caller's return address.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use adverb_text::copies::{Library, library};

use crate::path::exists;
use crate::real::{self, errno, real, reals, set_errno};

reals! {
    DLOPEN = c"dlopen";
}

const VARIABLE: &CStr = c"ADVERB_REPLACE";

/// The C library's function, for [`adverb_preload_dlopen`].
static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the drop-in library has been loaded with global symbols.
static SHARED: AtomicBool = AtomicBool::new(false);

/// The name to open in place of `name`.
///
/// # Safety
/// `name` is null or a string.
unsafe extern "C-unwind" fn name_for(name: *const c_char) -> *const c_char {
    if REAL.load(Ordering::Relaxed).is_null() {
        look_up();
    }
    // SAFETY: the C library's view of the environment.
    if name.is_null() || unsafe { libc::getenv(VARIABLE.as_ptr()) }.is_null() {
        return name;
    }
    // SAFETY: not null, so a string.
    let bytes = unsafe { CStr::from_ptr(name) }.to_bytes();
    if !crate::text::has_slash(bytes) {
        return name;
    }
    let before = errno();
    let answer = match library(bytes) {
        Some(library) if exists(name) => match library {
            Library::Verbs => c"libibverbs.so.1".as_ptr(),
            Library::Manager => c"librdmacm.so.1".as_ptr(),
        },
        Some(_) => name,
        None => {
            share();
            name
        }
    };
    set_errno(before);
    answer
}

/// Makes the drop-in library's symbols global, once.
fn share() {
    if SHARED.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Some(dlopen) = real!(DLOPEN: fn(*const c_char, c_int) -> *mut c_void) {
        // SAFETY: a string. If there is no drop-in for this C library, the program runs without.
        unsafe { dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
        // SAFETY: clears the error, so that the program's `dlerror` does not report it.
        unsafe { libc::dlerror() };
    }
}

#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_dlopen() {
    core::arch::naked_asm!(
        "push rsi",
        "call {name}",
        "pop rsi",
        "mov rdi, rax",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "jz 2f",
        "jmp rax",
        "2:",
        "ret",
        name = sym name_for,
        real = sym REAL,
    )
}

#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_dlopen() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, -32]!",
        "str x1, [sp, 16]",
        "bl {name}",
        "ldr x1, [sp, 16]",
        "ldp x29, x30, [sp], 32",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov x0, xzr",
        "ret",
        name = sym name_for,
        real = sym REAL,
    )
}

/// Looks up the C library's functions. Called before the program runs.
pub fn look_up() {
    real::look_up(REALS);
    REAL.store(DLOPEN.get().unwrap_or(core::ptr::null_mut()), Ordering::Release);
}
