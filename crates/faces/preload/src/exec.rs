//! `exec`: a program that is started with a cleared environment, by `env -i` or `sudo`, does not
//! have the drop-in libraries, and would find no device without a word.
//!
//! The process that `adverb run` became names every program that it starts so. Others, which
//! programs start by the dozen, may have readers of their own for what they print: they name
//! programs that are linked with a library of verbs, which would see no device. `env`, `make` and
//! test runners are such processes.

mod file;
mod needed;
mod told;
mod variadic;

pub use variadic::*;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use adverb_printable::{first_char, is_obeyed};

use crate::real::{errno, real, reals, set_errno};
use file::File;

/// The process that `adverb run` became, by number.
const VARIABLE: &CStr = c"ADVERB_RUN";
/// What `adverb run` sets in every environment.
const SET: [&[u8]; 2] = [b"LD_PRELOAD=", b"ADVERB_LOG="];

/// This process's number, if it is that one and warnings are wanted; else 0.
static OWN: AtomicI32 = AtomicI32::new(0);
/// It was started by `adverb run`, and warnings are wanted.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The directory of the drop-in libraries: a part of the environment that this process began with.
static DIRECTORY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static DIRECTORY_LEN: AtomicUsize = AtomicUsize::new(0);

reals! {
    EXECVE = c"execve";
    EXECVPE = c"execvpe";
    EXECV = c"execv";
    EXECVP = c"execvp";
    FEXECVE = c"fexecve";
    EXECVEAT = c"execveat";
    SPAWN = c"posix_spawn";
    SPAWNP = c"posix_spawnp";
}

/// The names interposed.
pub const NAMES: &[&str] = &[
    "execve",
    "execvpe",
    "execv",
    "execvp",
    "fexecve",
    "execveat",
    "posix_spawn",
    "posix_spawnp",
    "execl",
    "execlp",
    "execle",
];

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
    told::look_up(value);
    let quiet = matches!(value(c"ADVERB_LOG"), b"off" | b"error");
    // SAFETY: always possible.
    let own = unsafe { libc::getpid() };
    let run = number(value(VARIABLE)).filter(|_| !quiet);
    if run == Some(own) {
        OWN.store(own, Ordering::Relaxed);
    }
    // `adverb run` puts it first.
    let directory = value(c"LD_LIBRARY_PATH").split(|b| *b == b':').next().unwrap_or_default();
    if !directory.is_empty() {
        DIRECTORY.store(directory.as_ptr().cast_mut(), Ordering::Relaxed);
        DIRECTORY_LEN.store(directory.len(), Ordering::Relaxed);
        WANTED.store(run.is_some(), Ordering::Relaxed);
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

/// Are the drop-in libraries found by an environment?
///
/// # Safety
/// It is null, or a list of strings.
unsafe fn has_drop_ins(mut list: List) -> bool {
    let (at, len) = (DIRECTORY.load(Ordering::Relaxed), DIRECTORY_LEN.load(Ordering::Relaxed));
    if list.is_null() || at.is_null() {
        return false;
    }
    // SAFETY: up to its null, as the caller promises; the directory is of the environment that this
    // process began with, which lies on its first stack.
    unsafe {
        let directory = core::slice::from_raw_parts(at, len);
        while !(*list).is_null() {
            let entry = CStr::from_ptr(*list).to_bytes();
            if let Some(paths) = entry.strip_prefix(b"LD_LIBRARY_PATH=")
                && paths.split(|b| *b == b':').any(|path| path == directory)
            {
                return true;
            }
            if let Some(files) = entry.strip_prefix(b"LD_PRELOAD=")
                && files.windows(b"/libibverbs.so".len()).any(|name| name == b"/libibverbs.so")
            {
                return true;
            }
            list = list.add(1);
        }
    }
    false
}

const CLEARED: &[u8] = b" is started with an environment that was cleared (env -i, sudo): the drop-in libraries are not in place, and it will not \
          see the device; put `adverb run --` in front of it\n";
const LOST: &[u8] = b" is started with an LD_LIBRARY_PATH without the directory of the drop-in libraries: it will not see the device; leave \
          the variable in place, or put `adverb run --` in front of the program\n";
const PRIVILEGED: &[u8] = b" is set-user-ID or set-group-ID: the loader ignores LD_LIBRARY_PATH and LD_PRELOAD for it, and it will not see the \
          device; run a copy without these\n";

/// What keeps the program from the device, in words; `None`: nothing, or it was said before.
/// `open` opens its file.
///
/// # Safety
/// A list of strings or null.
unsafe fn obstacle(name: &[u8], list: List, open: impl FnOnce() -> Option<File>) -> Option<&'static [u8]> {
    // SAFETY: always possible.
    let is_first = OWN.load(Ordering::Relaxed) == unsafe { libc::getpid() };
    // SAFETY: the caller's promise.
    let (cleared, found) = unsafe { (is_cleared(list), has_drop_ins(list)) };
    let at_any_rate = is_first && cleared;
    if !at_any_rate && !WANTED.load(Ordering::Relaxed) {
        return None;
    }
    let program = open();
    let identity = program.as_ref().and_then(File::identity);
    let why = if at_any_rate {
        CLEARED
    } else {
        let file = program?.interpreter();
        let privileged = found && file.is_privileged();
        if found && !privileged || !needed::uses_verbs(&file) {
            return None;
        }
        match (cleared, privileged) {
            (_, true) => PRIVILEGED,
            (true, _) => CLEARED,
            _ => LOST,
        }
    };
    let known = match identity {
        Some([device, number]) => told::before(&[&device.to_ne_bytes(), &number.to_ne_bytes()]),
        None => told::before(&[name]),
    };
    (!known).then_some(why)
}

/// Says so if the program will not see the device.
///
/// # Safety
/// A string or null, and a list of strings or null.
unsafe fn tell(path: Path, list: List, searched: bool) {
    if path.is_null() {
        return;
    }
    // SAFETY: the C library's view of the environment: a string or null.
    let search = if searched { unsafe { libc::getenv(c"PATH".as_ptr()) } } else { core::ptr::null_mut() };
    // SAFETY: the caller's promise.
    unsafe { tell_of(path, list, || File::find(libc::AT_FDCWD, path, search)) };
}

/// The same for a program whose file is opened by `open`.
///
/// # Safety
/// A string, and a list of strings or null.
unsafe fn tell_of(path: Path, list: List, open: impl FnOnce() -> Option<File>) {
    let before = errno();
    // SAFETY: a string, as the caller promises.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    // SAFETY: the caller's promise.
    if let Some(why) = unsafe { obstacle(name, list, open) } {
        let mut line = Line::new();
        line.add(b"adverb run: warning: ");
        line.add_printable(name);
        line.add(why);
        // SAFETY: the text lives through the call.
        unsafe { libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.text.as_ptr(), line.len) };
    }
    set_errno(before);
}

/// Room for the end of a line, which the name does not get.
const END: usize = 512;

/// A line for the terminal.
struct Line {
    text: [u8; 1536],
    len: usize,
}

impl Line {
    fn new() -> Line {
        Line { text: [0; 1536], len: 0 }
    }

    fn add(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        if let Some(room) = self.text.get_mut(self.len..end) {
            room.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            self.len = end;
        }
    }

    /// Adds a name from outside: what a terminal obeys is written out, as `printable` does. A long
    /// one is cut.
    fn add_printable(&mut self, name: &[u8]) {
        let mut rest = name;
        while let Some((first, len)) = first_char(rest) {
            if self.len + END > self.text.len() {
                return self.add("…".as_bytes());
            }
            let (piece, behind) = rest.split_at_checked(len).unwrap_or_default();
            rest = behind;
            match first {
                Some(c) if is_obeyed(c) => {
                    self.add(b"\\u");
                    for shift in [12, 8, 4, 0] {
                        let digit = (u32::from(c) >> shift & 15) as u8;
                        self.add(&[if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }]);
                    }
                }
                Some(_) => self.add(piece),
                None => self.add("\u{fffd}".as_bytes()),
            }
        }
    }
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
    unsafe { tell(path, envp, false) };
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
    unsafe { tell(path, envp, true) };
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
    unsafe { tell(path, environ, false) };
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
    unsafe { tell(path, environ, true) };
    let Some(real) = real!(EXECVP: fn(Path, List) -> c_int) else { return absent() };
    // SAFETY: the caller's arguments.
    unsafe { real(path, argv) }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_fexecve(fd: c_int, argv: List, envp: List) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !argv.is_null() && !(*argv).is_null() {
            tell_of(*argv, envp, || File::of(fd));
        }
    }
    let Some(real) = real!(FEXECVE: fn(c_int, List, List) -> c_int) else { return absent() };
    // SAFETY: the caller's arguments.
    unsafe { real(fd, argv, envp) }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_execveat(
    dir: c_int,
    path: Path,
    argv: List,
    envp: List,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !path.is_null() && *path != 0 {
            tell_of(path, envp, || File::find(dir, path, core::ptr::null()));
        }
    }
    let Some(real) = real!(EXECVEAT: fn(c_int, Path, List, List, c_int) -> c_int) else { return absent() };
    // SAFETY: the caller's arguments.
    unsafe { real(dir, path, argv, envp, flags) }
}

type Spawn = unsafe extern "C" fn(*mut c_int, Path, *const c_void, *const c_void, List, List) -> c_int;

/// What both functions that start a child do.
///
/// # Safety
/// That of the C library's functions.
unsafe fn spawn(
    real: Option<*mut c_void>,
    searched: bool,
    pid: *mut c_int,
    path: Path,
    with: [*const c_void; 2],
    lists: [List; 2],
) -> c_int {
    let Some(real) = real else { return libc::ENOSYS };
    // SAFETY: the caller's arguments; the C library's functions have this signature.
    unsafe {
        tell(path, lists[1], searched);
        let real = core::mem::transmute::<*mut c_void, Spawn>(real);
        real(pid, path, with[0], with[1], lists[0], lists[1])
    }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_posix_spawn(
    pid: *mut c_int,
    path: Path,
    actions: *const c_void,
    attributes: *const c_void,
    argv: List,
    envp: List,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { spawn(SPAWN.get(), false, pid, path, [actions, attributes], [argv, envp]) }
}

/// The function of this name.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_posix_spawnp(
    pid: *mut c_int,
    path: Path,
    actions: *const c_void,
    attributes: *const c_void,
    argv: List,
    envp: List,
) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe { spawn(SPAWNP.get(), true, pid, path, [actions, attributes], [argv, envp]) }
}
