//! `exec`: a program that is started with a cleared environment, by `env -i` or `sudo`, does not
//! have the drop-in libraries, and would find no device without a word.
//!
//! Only the process that `adverb run` became says so. Others, which programs start by the dozen,
//! may have readers of their own for what they print.

use core::ffi::{CStr, c_char, c_int};
use core::sync::atomic::{AtomicI32, Ordering};

use crate::real::{errno, real, reals, set_errno};

/// The process that `adverb run` became, by number.
const VARIABLE: &CStr = c"ADVERB_RUN";
/// What `adverb run` sets in every environment.
const SET: [&[u8]; 2] = [b"LD_PRELOAD=", b"ADVERB_LOG="];

/// This process's number, if it is that one and warnings are wanted; else 0.
static OWN: AtomicI32 = AtomicI32::new(0);

reals! {
    EXECVE = c"execve";
    EXECVPE = c"execvpe";
    EXECV = c"execv";
    EXECVP = c"execvp";
}

/// The names interposed.
pub const NAMES: &[&str] = &["execve", "execvpe", "execv", "execvp"];

type Path = *const c_char;
type List = *const *const c_char;

unsafe extern "C" {
    static environ: List;
}

/// Looks the C library's functions up, and at who this is; called before the program runs.
pub fn look_up() {
    for real in REALS {
        real.get();
    }
    // SAFETY: the C library's view of the environment: strings or null.
    let value = |name: &CStr| unsafe {
        let at = libc::getenv(name.as_ptr());
        if at.is_null() { &[][..] } else { CStr::from_ptr(at).to_bytes() }
    };
    let quiet = matches!(value(c"ADVERB_LOG"), b"off" | b"error");
    // SAFETY: always possible.
    let own = unsafe { libc::getpid() };
    if !quiet && number(value(VARIABLE)) == Some(own) {
        OWN.store(own, Ordering::Relaxed);
    }
}

/// A decimal number.
fn number(text: &[u8]) -> Option<c_int> {
    let digit = |n: c_int, b: &u8| {
        let digit = b.is_ascii_digit().then_some(c_int::from(*b & 15))?;
        n.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

/// Has an environment nothing of what `adverb run` set?
///
/// # Safety
/// It is null, or a list of strings.
unsafe fn is_cleared(mut list: List) -> bool {
    if list.is_null() {
        return true;
    }
    // SAFETY: up to its null, as the caller promises.
    unsafe {
        while !(*list).is_null() {
            let entry = CStr::from_ptr(*list).to_bytes();
            if SET.iter().any(|name| entry.starts_with(name)) {
                return false;
            }
            list = list.add(1);
        }
    }
    true
}

/// Says so if the program will not see the device.
///
/// # Safety
/// A string or null, and a list of strings or null.
unsafe fn tell(path: Path, list: List) {
    let own = OWN.load(Ordering::Relaxed);
    // SAFETY: always possible; the rest is the caller's promise.
    if own == 0 || path.is_null() || unsafe { libc::getpid() != own || !is_cleared(list) } {
        return;
    }
    // SAFETY: not null, so a string.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    let before = errno();
    let parts: [&[u8]; 3] = [
        b"adverb run: warning: ",
        name,
        b" is started with an environment that was cleared (env -i, sudo): the drop-in libraries are not in place, and it will not \
          see the device; put `adverb run --` in front of it\n",
    ];
    let parts =
        parts.map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: three pieces of memory that live through the call.
    unsafe { libc::syscall(libc::SYS_writev, libc::STDERR_FILENO, parts.as_ptr(), parts.len()) };
    set_errno(before);
}

fn absent() -> c_int {
    set_errno(libc::ENOSYS);
    -1
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_execve(path: Path, argv: List, envp: List) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { tell(path, envp) };
    let Some(real) = real!(EXECVE: fn(Path, List, List) -> c_int) else { return absent() };
    // SAFETY: the caller's arguments.
    unsafe { real(path, argv, envp) }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_execvpe(path: Path, argv: List, envp: List) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { tell(path, envp) };
    let Some(real) = real!(EXECVPE: fn(Path, List, List) -> c_int) else { return absent() };
    // SAFETY: the caller's arguments.
    unsafe { real(path, argv, envp) }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_execv(path: Path, argv: List) -> c_int {
    // SAFETY: the caller's arguments, and the program's environment.
    unsafe { tell(path, environ) };
    let Some(real) = real!(EXECV: fn(Path, List) -> c_int) else { return absent() };
    // SAFETY: the caller's arguments.
    unsafe { real(path, argv) }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_execvp(path: Path, argv: List) -> c_int {
    // SAFETY: the caller's arguments, and the program's environment.
    unsafe { tell(path, environ) };
    let Some(real) = real!(EXECVP: fn(Path, List) -> c_int) else { return absent() };
    // SAFETY: the caller's arguments.
    unsafe { real(path, argv) }
}
