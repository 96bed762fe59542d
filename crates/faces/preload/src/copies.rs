//! `dlopen`: copies of libibverbs and librdmacm that a program opens give way to the drop-in ones.
//!
//! A copy that is opened itself, by a path, is opened by the library's plain name instead, to which
//! the directory of the drop-in libraries leads. A module (of Python, say) that needs a copy finds
//! the drop-in among the symbols that all share: it is there before the first file that is opened
//! by a path, and these are looked at before a module's own.
//!
//! The loader decides by its caller what a name means. So the real function is jumped to, with the
//! caller's return address.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use adverb_copies::{Library, library};

use crate::real::{errno, real, reals, set_errno};

/// The names that this module defines.
pub const NAMES: &[&str] = &["dlopen"];

reals! {
    DLOPEN = c"dlopen";
}

const VARIABLE: &CStr = c"ADVERB_REPLACE";

/// The C library's function, for [`adverb_preload_dlopen`].
static REAL: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

/// Whether the drop-in library is where all look first.
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
    if !crate::path::has_slash(bytes) {
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

/// Whether a path leads to something, past every stand-in.
fn exists(path: *const c_char) -> bool {
    // SAFETY: a string; the call only looks.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path, libc::F_OK) == 0 }
}

/// Makes the drop-in library's symbols those that all look at first, once.
fn share() {
    if SHARED.swap(true, Ordering::AcqRel) {
        return;
    }
    if let Some(dlopen) = real!(DLOPEN: fn(*const c_char, c_int) -> *mut c_void) {
        // SAFETY: a string. Where there is none for this program's C library, it runs without.
        unsafe { dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_GLOBAL) };
        // SAFETY: takes back what that failure would tell the program by `dlerror`.
        unsafe { libc::dlerror() };
    }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
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

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
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

/// Looks the C library's functions up; called before the program runs.
pub fn look_up() {
    for real in REALS {
        real.get();
    }
    REAL.store(DLOPEN.get().unwrap_or(core::ptr::null_mut()), Ordering::Release);
}
