//! What was said in a run, so that it is said once for each program: a table in a file beside the
//! tree of the run, which all processes of the user share. An entry is a hash of the run and the
//! program. One atomic exchange looks and notes, so two processes at once say it once. The size of
//! the table is fixed. Where two programs have one place, each may be named again.

use core::ffi::CStr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use super::file::{PATH_MAX, join};

const SYSROOT: &CStr = c"ADVERB_SYSROOT";
/// The name of the run: the survivor's is random.
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

/// The run, as a hash.
static RUN_HASH: AtomicU64 = AtomicU64::new(0);
/// The tree's path: a part of the environment that this process began with. The program may clear
/// its environment before it starts another one, as `env` does.
static SYSROOT_AT: AtomicPtr<u8> = AtomicPtr::new(core::ptr::null_mut());
static SYSROOT_LEN: AtomicUsize = AtomicUsize::new(0);

/// Looks at the environment; called before the program runs.
pub fn look_up(value: impl Fn(&CStr) -> &'static [u8]) {
    let run = RUN.iter().fold(Hash(0xcbf2_9ce4_8422_2325), |hash, name| hash.add(value(name)).add(b"\0"));
    RUN_HASH.store(run.0, Ordering::Relaxed);
    let sysroot = value(SYSROOT);
    SYSROOT_AT.store(sysroot.as_ptr().cast_mut(), Ordering::Relaxed);
    SYSROOT_LEN.store(sysroot.len(), Ordering::Relaxed);
}

/// Notes that a program is named; answers whether it was before in this run. Where there is no
/// table it was not.
pub fn before(program: &[&[u8]]) -> bool {
    let run = Hash(RUN_HASH.load(Ordering::Relaxed));
    // Zero is an entry that was never used.
    let hash = program.iter().fold(run, |hash, part| hash.add(part)).0.max(1);
    let (at, len) = (SYSROOT_AT.load(Ordering::Relaxed), SYSROOT_LEN.load(Ordering::Relaxed));
    if at.is_null() {
        return false;
    }
    // SAFETY: the environment that this process began with lies on its first stack.
    note(unsafe { core::slice::from_raw_parts(at, len) }, hash).unwrap_or(false)
}

fn note(sysroot: &[u8], hash: u64) -> Option<bool> {
    let end = sysroot.iter().rposition(|b| *b == b'/')?;
    let mut path = [0; PATH_MAX];
    let path = join(&mut path, [sysroot.get(..end)?, FILE, b""])?;
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let len = ENTRIES * size_of::<u64>();
    // SAFETY: a terminated path; the file has room for the mapping on its medium before it is
    // mapped; the mapping is of this function alone, and the place lies in it, aligned.
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
