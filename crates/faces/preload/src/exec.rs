//! `exec`: a program started with a cleared environment (by `env -i` or `sudo`) does not get the
//! drop-in libraries. Without a warning, the program would find no device and the user would not
//! know why.
//!
//! The process that `adverb run` became warns about every such program. Other processes (`env`,
//! `make`, test runners) are numerous, and another program may read their output. These processes
//! warn only about programs linked with a verbs library, which would find no device.

mod drop_ins;
mod file;
mod needed;
mod told;
mod variadic;

pub use variadic::*;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use adverb_text::printable::{first_char, is_obeyed};

use crate::real::{self, call, errno, real, reals, set_errno};
use drop_ins::Found;
use file::File;

/// PID of the process that `adverb run` became; after `adverb env`, a word.
const VARIABLE: &CStr = c"ADVERB_RUN";
/// Variables that `adverb run` sets in every environment.
const SET: [&[u8]; 2] = [b"LD_PRELOAD=", b"ADVERB_LOG="];

/// The PID of this process if `adverb run` became this process and warnings are on; else 0.
static OWN: AtomicI32 = AtomicI32::new(0);
/// The environment of this process is from `adverb run` or `adverb env`, and warnings are on.
static WANTED: AtomicBool = AtomicBool::new(false);

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

type Path = *const c_char;
pub(crate) type List = *const *const c_char;

unsafe extern "C" {
    pub(crate) static environ: List;
}

/// Looks up the C library's functions, and reads the environment. Called before the program runs.
pub fn look_up() {
    real::look_up(REALS);
    // SAFETY: the C library's view of the environment: strings or null.
    let value = |name: &CStr| unsafe {
        let at = libc::getenv(name.as_ptr());
        if at.is_null() { &[][..] } else { CStr::from_ptr(at).to_bytes() }
    };
    told::look_up(value);
    let quiet = matches!(value(c"ADVERB_LOG"), b"off" | b"error");
    // SAFETY: `getpid` always succeeds.
    let own = unsafe { libc::getpid() };
    let run = value(VARIABLE);
    if number(run).filter(|_| !quiet) == Some(own) {
        OWN.store(own, Ordering::Relaxed);
    }
    let wanted = drop_ins::look_up(value) && !run.is_empty() && !quiet;
    WANTED.store(wanted, Ordering::Relaxed);
}

/// Parses a decimal number.
fn number(text: &[u8]) -> Option<c_int> {
    let digit = |n: c_int, b: &u8| {
        let digit = b.is_ascii_digit().then_some(c_int::from(*b & 15))?;
        n.checked_mul(10)?.checked_add(digit)
    };
    if text.is_empty() { None } else { text.iter().try_fold(0, digit) }
}

/// Does an environment lack everything that `adverb run` set?
///
/// # Safety
/// `list` is null, or a list of strings.
unsafe fn is_cleared(mut list: List) -> bool {
    if list.is_null() {
        return true;
    }
    // SAFETY: read up to the null only, as the caller promises.
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

const CLEARED: &[u8] = b" is started with a cleared environment (env -i, sudo): the drop-in \
                         libraries are not in place, so the program will not see the device; put \
                         `adverb run --` in front of the program\n";
const LOST: &[u8] = b" is started with an LD_LIBRARY_PATH without the directory of the drop-in \
                      libraries: the program will not see the device; leave the variable in place, \
                      or put `adverb run --` in front of the program\n";
const BEHIND: &[u8] = b" is started with an LD_LIBRARY_PATH in which other verbs libraries come \
                        before the drop-in libraries: the program will not see the device; use \
                        --replace (adverb run, adverb env), or put `adverb run --` in front of the \
                        program\n";
const COPY: &[u8] = b" is linked with a copy of libibverbs or librdmacm by a run path, or under \
                      another name, and the copy comes before the drop-in libraries: the program \
                      will not see the device; use --replace (adverb run, adverb env), or put \
                      `adverb run --` in front of the program\n";
const STARTER: &[u8] = b" is set-user-ID or set-group-ID, so the loader drops LD_LIBRARY_PATH and \
                         LD_PRELOAD: the program that it starts will not see the device; put \
                         `adverb run --` in front of that program (sudo adverb run -- PROGRAM)\n";
const PRIVILEGED: &[u8] = b" is set-user-ID or set-group-ID: the loader ignores LD_LIBRARY_PATH \
                            and LD_PRELOAD, so the program will not see the device; run a copy \
                            without these rights\n";

/// A start of a program.
#[derive(Clone, Copy)]
struct Start {
    argv: List,
    environment: List,
}

/// The text of a warning about a program that will not see the device. `None`: there is nothing to
/// warn about, or this run has warned about the program before. `open` opens the program's file.
///
/// # Safety
/// The lists of `start` are null, or lists of strings.
unsafe fn obstacle(
    name: &[u8],
    start: Start,
    open: impl FnOnce() -> Option<File>,
) -> Option<&'static [u8]> {
    // SAFETY: `getpid` always succeeds.
    let is_first = OWN.load(Ordering::Relaxed) == unsafe { libc::getpid() };
    // SAFETY: the caller's promise.
    let cleared = unsafe { is_cleared(start.environment) };
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
        // SAFETY: the caller's promise.
        let found = unsafe { drop_ins::find(start.environment) };
        match (found, found != Found::Nowhere && file.is_privileged(), cleared) {
            // SAFETY: the caller's promise.
            (_, true, _) if !needed::uses_verbs(&file) && unsafe { starts_verbs(start.argv) } => {
                STARTER
            }
            (Found::Always, false, _) => return None,
            (Found::First, false, _) if drop_ins::replace() && needed::brings_copy(&file) => COPY,
            (Found::First, false, _) => return None,
            _ if !needed::uses_verbs(&file) => return None,
            (_, true, _) => PRIVILEGED,
            (.., true) => CLEARED,
            (Found::Behind, ..) => BEHIND,
            (_, _, false) => LOST,
        }
    };
    let known = match identity {
        Some([device, number]) => told::before(&[&device.to_ne_bytes(), &number.to_ne_bytes()]),
        None => told::before(&[name]),
    };
    (!known).then_some(why)
}

/// Do the arguments of a program name another program that uses verbs? The first argument that is a
/// program counts. The value of an option for a user or group may be a program's name as well, and
/// does not count.
///
/// # Safety
/// `list` is null, or a list of strings.
unsafe fn starts_verbs(mut list: List) -> bool {
    if list.is_null() {
        return false;
    }
    // SAFETY: read up to the null only, as the caller promises. The C library's view of the
    // environment is a string or null.
    unsafe {
        let search = libc::getenv(c"PATH".as_ptr());
        let mut is_value = false;
        while !(*list).is_null() {
            list = list.add(1);
            if (*list).is_null() {
                break;
            }
            let word = CStr::from_ptr(*list).to_bytes();
            if is_value {
                is_value = false;
                continue;
            }
            is_value = names_user(word);
            // `contains` could panic as far as the compiler knows.
            let assigns = word.split(|b| *b == b'=').nth(1).is_some();
            if assigns || word.first().is_none_or(|b| *b == b'-') {
                continue;
            }
            if let Some(file) = File::find(libc::AT_FDCWD, *list, search) {
                return needed::uses_verbs(&file.interpreter());
            }
        }
    }
    false
}

/// Is a word an option whose value, the next word, is a user or group? These are `-u` and `-g`,
/// also at the end of several letters (`-nu`), and `--user` and `--group`.
fn names_user(word: &[u8]) -> bool {
    match word {
        b"--user" | b"--group" => true,
        [b'-', b'-', ..] => false,
        [b'-', .., last] => matches!(last, b'u' | b'g'),
        _ => false,
    }
}

/// Prints a warning if the program will not see the device.
///
/// # Safety
/// `path` is a string or null. The lists of `start` are null, or lists of strings.
unsafe fn tell(path: Path, start: Start, searched: bool) {
    if path.is_null() {
        return;
    }
    let search = if searched {
        // SAFETY: the C library's view of the environment: a string or null.
        unsafe { libc::getenv(c"PATH".as_ptr()) }
    } else {
        core::ptr::null_mut()
    };
    // SAFETY: the caller's promise.
    unsafe { tell_of(path, start, || File::find(libc::AT_FDCWD, path, search)) };
}

/// The same; `open` opens the file of the program.
///
/// # Safety
/// `path` is a string. The lists of `start` are null, or lists of strings.
unsafe fn tell_of(path: Path, start: Start, open: impl FnOnce() -> Option<File>) {
    let before = errno();
    // SAFETY: a string, as the caller promises.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    // SAFETY: the caller's promise.
    if let Some(why) = unsafe { obstacle(name, start, open) } {
        let mut line = Line::new();
        line.add(b"adverb run: warning: ");
        line.add_printable(name);
        line.add(why);
        // SAFETY: the text is valid during the call.
        unsafe {
            libc::syscall(libc::SYS_write, libc::STDERR_FILENO, line.text.as_ptr(), line.len)
        };
    }
    set_errno(before);
}

/// Room reserved for the end of a line, after the name.
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

    /// Adds a name from outside. Characters that control a terminal are escaped, as in `printable`.
    /// A long name is cut.
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

/// Defines the functions that start a program by its path.
macro_rules! starting {
    ($($symbol:ident = $real:ident($argv:ident $(, $envp:ident)?), $environment:expr, $searched:literal;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(path: Path, $argv: List $(, $envp: List)?) -> c_int {
            // SAFETY: the caller's arguments, and the program's environment.
            unsafe { tell(path, Start { argv: $argv, environment: $environment }, $searched) };
            call!($real: fn(path => Path, $argv => List $(, $envp => List)?) -> c_int)
        }
    )* };
}

starting! {
    adverb_preload_execve = EXECVE(argv, envp), envp, false;
    adverb_preload_execvpe = EXECVPE(argv, envp), envp, true;
    adverb_preload_execv = EXECV(argv), environ, false;
    adverb_preload_execvp = EXECVP(argv), environ, true;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn adverb_preload_fexecve(fd: c_int, argv: List, envp: List) -> c_int {
    // SAFETY: the caller's arguments.
    unsafe {
        if !argv.is_null() && !(*argv).is_null() {
            tell_of(*argv, Start { argv, environment: envp }, || File::of(fd));
        }
    }
    call!(FEXECVE: fn(fd => c_int, argv => List, envp => List) -> c_int)
}

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
            tell_of(path, Start { argv, environment: envp }, || {
                File::find(dir, path, core::ptr::null())
            });
        }
    }
    call!(EXECVEAT: fn(
        dir => c_int, path => Path, argv => List, envp => List, flags => c_int) -> c_int)
}

/// Defines the functions that start a child.
macro_rules! spawning {
    ($($symbol:ident = $real:ident, $searched:literal;)*) => { $(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(
            pid: *mut c_int, path: Path, actions: *const c_void, attributes: *const c_void,
            argv: List, envp: List,
        ) -> c_int {
            let real = real!($real: fn(
                *mut c_int, Path, *const c_void, *const c_void, List, List) -> c_int);
            let Some(real) = real else { return libc::ENOSYS };
            // SAFETY: the caller's arguments.
            unsafe {
                tell(path, Start { argv, environment: envp }, $searched);
                real(pid, path, actions, attributes, argv, envp)
            }
        }
    )* };
}

spawning! {
    adverb_preload_posix_spawn = SPAWN, false;
    adverb_preload_posix_spawnp = SPAWNP, true;
}
