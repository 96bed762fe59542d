//! Records the warnings of a run, so that each program is named once. The record is a table in a
//! file beside the tree of the run, shared by all processes of the user. An entry is a hash of the
//! run and the program. One atomic exchange reads and writes the entry, so of two simultaneous
//! processes only the first warns. The table has a fixed size. If two programs share an entry, each
//! may be named again.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::file::PATH_MAX;
use crate::text::join;

const SYSROOT: &CStr = c"ADVERB_SYSROOT";
/// The variables that identify the run; the survivor's name is random.
const RUN: [&CStr; 2] = [c"ADVERB_SURVIVOR", c"ADVERB_RUN"];
const FILE: &[u8] = b"/told";
const ENTRIES: usize = 4096;

/// FNV-1a.
struct Hash(u64);

impl Hash {
    fn add(self, bytes: &[u8]) -> Hash {
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        Hash(bytes.iter().fold(self.0, mix))
    }
}

/// Hash of the run.
static RUN_HASH: AtomicU64 = AtomicU64::new(0);
/// The path of the tree: a part of the environment with which this process began. The program may
/// clear its environment before it starts another program, as `env` does.
static SYSROOT_AT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static SYSROOT_LEN: AtomicUsize = AtomicUsize::new(0);

/// Reads the environment. Called before the program runs.
pub fn look_up(value: impl Fn(&CStr) -> &'static [u8]) {
    let run =
        RUN.iter().fold(Hash(0xcbf2_9ce4_8422_2325), |hash, name| hash.add(value(name)).add(b"\0"));
    RUN_HASH.store(run.0, Ordering::Relaxed);
    let sysroot = value(SYSROOT);
    SYSROOT_AT.store(sysroot.as_ptr().cast_mut(), Ordering::Relaxed);
    SYSROOT_LEN.store(sysroot.len(), Ordering::Relaxed);
}

/// Records that a program is named. Returns whether this run has named it before; `false` if there
/// is no table.
pub fn before(program: &[&[u8]]) -> bool {
    let run = Hash(RUN_HASH.load(Ordering::Relaxed));
    // Zero marks an unused entry.
    let hash = program.iter().fold(run, |hash, part| hash.add(part)).0.max(1);
    let (at, len) = (SYSROOT_AT.load(Ordering::Relaxed), SYSROOT_LEN.load(Ordering::Relaxed));
    if at.is_null() {
        return false;
    }
    // SAFETY: the environment with which this process began lies on its first stack.
    note(unsafe { core::slice::from_raw_parts(at, len) }, hash).unwrap_or(false)
}

fn note(sysroot: &[u8], hash: u64) -> Option<bool> {
    let end = sysroot.iter().rposition(|b| *b == b'/')?;
    let mut path = [0; PATH_MAX];
    let path = join(&mut path, [sysroot.get(..end)?, FILE, b""])?;
    let flags =
        libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let len = ENTRIES * size_of::<u64>();
    // SAFETY: a terminated path. The storage for the mapping is allocated before the file is
    // mapped. Only this function uses the mapping, and the entry lies within it, aligned.
    unsafe {
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600);
        if fd < 0 {
            return None;
        }
        let has_room = libc::syscall(libc::SYS_fallocate, fd, 0, 0_u64, len as u64) == 0;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let at = if has_room {
            libc::syscall(libc::SYS_mmap, 0_usize, len, access, libc::MAP_SHARED, fd, 0_usize)
        } else {
            -1
        };
        libc::syscall(libc::SYS_close, fd);
        if at == -1 {
            return None;
        }
        let table = core::ptr::with_exposed_provenance_mut::<AtomicU64>(at as usize);
        let known = (*table.add(hash as usize % ENTRIES)).swap(hash, Ordering::Relaxed) == hash;
        libc::syscall(libc::SYS_munmap, at, len);
        Some(known)
    }
}
