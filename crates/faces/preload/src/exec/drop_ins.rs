//! Does the loader find the drop-in libraries by an environment? This module does not allocate.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use super::List;
use super::file::{File, PATH_MAX};
use crate::text::join;

/// The libraries in the directory: the drop-ins replace other libraries of these names.
pub const NAMES: [&[u8]; 2] = [b"libibverbs.so.1", b"librdmacm.so.1"];

/// The directory of the drop-in libraries: a part of the environment with which this process began.
static DIRECTORY: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static DIRECTORY_LEN: AtomicUsize = AtomicUsize::new(0);
/// The drop-in libraries replace copies; off with `--no-replace`.
static REPLACES: AtomicBool = AtomicBool::new(false);

/// Which libraries the loader finds first.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The drop-in libraries, before all other ways to find a library.
    Always,
    /// The drop-in libraries, of those in `LD_LIBRARY_PATH`.
    First,
    /// Other libraries of these names.
    Behind,
    /// No drop-in libraries.
    Nowhere,
}

/// Reads the environment. Called before the program runs. Returns whether there is a directory.
pub fn look_up(value: impl Fn(&CStr) -> &'static [u8]) -> bool {
    let directory = value(c"ADVERB_DROPINS");
    REPLACES.store(!value(c"ADVERB_REPLACE").is_empty(), Ordering::Relaxed);
    DIRECTORY.store(directory.as_ptr().cast_mut(), Ordering::Relaxed);
    DIRECTORY_LEN.store(directory.len(), Ordering::Relaxed);
    !directory.is_empty()
}

/// Should the drop-in libraries replace copies of a program?
pub fn replace() -> bool {
    REPLACES.load(Ordering::Relaxed)
}

/// The directory of the drop-in libraries.
fn directory() -> Option<&'static [u8]> {
    let (at, len) = (DIRECTORY.load(Ordering::Relaxed), DIRECTORY_LEN.load(Ordering::Relaxed));
    // SAFETY: the directory is part of the environment with which this process began, which lies on
    // its first stack.
    (!at.is_null()).then(|| unsafe { core::slice::from_raw_parts(at, len) })
}

/// Opens a file of the directory.
fn open(name: &[u8]) -> Option<File> {
    let mut room = [0; PATH_MAX];
    let path = join(&mut room, [directory()?, b"/", name])?;
    File::open(libc::AT_FDCWD, path.as_ptr().cast())
}

/// Does the directory have a file of this name?
pub fn has(name: &[u8]) -> bool {
    open(name).is_some()
}

/// Is a file one of the drop-in libraries?
pub fn holds(file: &File) -> bool {
    let identity = file.identity();
    NAMES.iter().any(|name| open(name).is_some_and(|ours| ours.identity() == identity))
}

/// Looks for the drop-in libraries in an environment.
///
/// # Safety
/// `list` is null, or a list of strings.
pub unsafe fn find(mut list: List) -> Found {
    let mut found = Found::Nowhere;
    let Some(directory) = directory().filter(|_| !list.is_null()) else { return found };
    // SAFETY: read up to the null only, as the caller promises.
    unsafe {
        while !(*list).is_null() {
            let entry = CStr::from_ptr(*list).to_bytes();
            if let Some(paths) = entry.strip_prefix(b"LD_LIBRARY_PATH=") {
                found = in_paths(paths, directory);
            }
            let leads = |name: &[u8], file: &[u8]| {
                entry.starts_with(name)
                    && (0..entry.len())
                        .any(|at| entry.get(at..).is_some_and(|rest| rest.starts_with(file)))
            };
            // A preloaded library comes before all directories, and so does what the auditor
            // chooses.
            if leads(b"LD_PRELOAD=", b"/libibverbs.so")
                || leads(b"LD_AUDIT=", b"/libadverb_audit.so")
            {
                return Found::Always;
            }
            list = list.add(1);
        }
    }
    found
}

/// Looks for the directory in a list of paths.
fn in_paths(paths: &[u8], directory: &[u8]) -> Found {
    let mut first = Found::First;
    for path in paths.split(|b| *b == b':') {
        if path == directory {
            return first;
        }
        if first == Found::First && holds_another(path) {
            first = Found::Behind;
        }
    }
    Found::Nowhere
}

/// Does a directory have a library of these names?
fn holds_another(directory: &[u8]) -> bool {
    let mut room = [0; PATH_MAX];
    !directory.is_empty()
        && NAMES.iter().any(|name| {
            let Some(path) = join(&mut room, [directory, b"/", name]) else { return false };
            // SAFETY: a terminated path.
            let rc = unsafe {
                libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), libc::R_OK)
            };
            rc == 0
        })
}
