//! Copies by the kernel from and to memory that the program may unmap. The kernel answers a missing
//! page with an error instead of a signal.
//!
//! A program may unmap, protect or truncate registered memory (MEM-4). So no load or store of ours
//! touches the program's own memory. `process_vm_readv` and `process_vm_writev` on this process
//! copy instead, or, if a system call filter forbids these, `read` and `write` of a file in memory.
use crate::restart::{Guard, Withdrawn};
use crate::sys;
use adverb_engine::{MemoryFault, Range};
use nix::errno::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The direction of a copy, seen from the program's memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyDirection {
    Out,
    In,
}

/// Set when the kernel forbids `process_vm_*` on this process itself.
static FORBIDDEN: AtomicBool = AtomicBool::new(false);

/// Copies out of `from`.
pub(crate) fn read(from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
    copy(CopyDirection::Out, from.addr, to.as_mut_ptr() as u64, to.len() as u64)
}

/// Copies into `to`.
pub(crate) fn write(to: Range, from: &[u8]) -> Result<(), MemoryFault> {
    copy(CopyDirection::In, to.addr, from.as_ptr() as u64, from.len() as u64)
}

/// Copies out of `from` to `len` bytes at `to`, which the program may unmap, too.
pub(crate) fn copy_out(from: u64, to: u64, len: u64) -> Result<(), MemoryFault> {
    copy(CopyDirection::Out, from, to, len)
}

/// Copies into `to` from `len` bytes at `from`, which the program may unmap, too.
pub(crate) fn copy_in(to: u64, from: u64, len: u64) -> Result<(), MemoryFault> {
    copy(CopyDirection::In, to, from, len)
}

fn copy(way: CopyDirection, theirs: u64, ours: u64, len: u64) -> Result<(), MemoryFault> {
    let mut done = 0;
    while done < len {
        if FORBIDDEN.load(Ordering::Relaxed) {
            return by_file(way, theirs + done, ours + done, len - done);
        }
        match call(way, theirs + done, ours + done, len - done) {
            Ok(n) if n > 0 => done += n,
            Err(Errno::EPERM | Errno::ENOSYS | Errno::EACCES) => {
                FORBIDDEN.store(true, Ordering::Relaxed)
            }
            Err(Errno::EINTR) => {}
            _ => return Err(MemoryFault { addr: theirs + done }),
        }
    }
    Ok(())
}

fn call(way: CopyDirection, theirs: u64, ours: u64, len: u64) -> Result<u64, Errno> {
    with_args(way, theirs, ours, len, |number, args| {
        // SAFETY: the kernel checks every address on both sides. The bytes written are `ours`
        // (reading), lent by the caller, or memory opened by a key (writing).
        unsafe { sys::call(number, args) }
    })
}

fn with_args<R>(
    way: CopyDirection,
    theirs: u64,
    ours: u64,
    len: u64,
    f: impl FnOnce(i64, [u64; 6]) -> R,
) -> R {
    let vec =
        |addr: u64| libc::iovec { iov_base: addr as *mut libc::c_void, iov_len: len as usize };
    let (local, remote) = (vec(ours), vec(theirs));
    let number = match way {
        CopyDirection::Out => libc::SYS_process_vm_readv,
        CopyDirection::In => libc::SYS_process_vm_writev,
    };
    f(number, [sys::pid().into(), &raw const local as u64, 1, &raw const remote as u64, 1, 0])
}

/// The most bytes moved by one system call of a guarded copy. An owner that takes memory back waits
/// for the end of such a call.
pub(crate) const AT_ONCE: u64 = 1 << 20;

/// Why a guarded copy ended early.
pub(crate) enum Cut {
    /// The guard does not hold any more.
    Withdrawn,
    /// The kernel forbids the call; this many bytes are copied.
    Forbidden(u64),
    /// The program's memory is missing.
    Fault(MemoryFault),
}

/// Copies `len` bytes from `from`, memory of the program, to `to`, in a peer's file.
pub(crate) fn copy_to_peer(guard: &Guard<'_>, from: u64, to: u64, len: u64) -> Result<(), Cut> {
    guarded(guard, CopyDirection::Out, from, to, len)
}

/// Copies `len` bytes to `to`, memory of the program, from `from`, in a peer's file.
pub(crate) fn copy_from_peer(guard: &Guard<'_>, to: u64, from: u64, len: u64) -> Result<(), Cut> {
    guarded(guard, CopyDirection::In, to, from, len)
}

fn guarded(
    guard: &Guard<'_>,
    way: CopyDirection,
    theirs: u64,
    ours: u64,
    len: u64,
) -> Result<(), Cut> {
    let mut done = 0;
    while done < len {
        if FORBIDDEN.load(Ordering::Relaxed) {
            return Err(Cut::Forbidden(done));
        }
        let n = (len - done).min(AT_ONCE);
        let result = with_args(way, theirs + done, ours + done, n, |number, args| {
            // SAFETY: as in `call`; `ours` lies in a window, which the caller checked.
            unsafe { guard.call(number, args) }
        });
        match result {
            Err(Withdrawn) => return Err(Cut::Withdrawn),
            Ok(Ok(n)) if n > 0 => done += n,
            Ok(Err(Errno::EPERM | Errno::ENOSYS | Errno::EACCES)) => {
                FORBIDDEN.store(true, Ordering::Relaxed)
            }
            Ok(Err(Errno::EINTR)) => {}
            _ => return Err(Cut::Fault(MemoryFault { addr: theirs + done })),
        }
    }
    Ok(())
}

/// Bytes copied at a time through a file.
const PIECE: u64 = 64 << 10;

/// Copies through a file in memory: `write` reads the one side, `read` writes to the other.
#[cold]
fn by_file(way: CopyDirection, theirs: u64, ours: u64, len: u64) -> Result<(), MemoryFault> {
    let fault = |done| MemoryFault { addr: theirs + done };
    let Some(fd) = scratch() else { return Err(fault(0)) };
    let (from, to) = match way {
        CopyDirection::Out => (theirs, ours),
        CopyDirection::In => (ours, theirs),
    };
    let mut done = 0;
    while done < len {
        let n = (len - done).min(PIECE);
        // Each thread has its own offset, because other threads use the file, too.
        let at = PLACE.with(|place| *place);
        for (number, addr) in [(libc::SYS_pwrite64, from + done), (libc::SYS_pread64, to + done)] {
            let mut moved = 0;
            while moved < n {
                // SAFETY: as in `call`.
                match unsafe { sys::transfer(number, fd, addr + moved, n - moved, at + moved) } {
                    Ok(got) if got > 0 => moved += got,
                    Err(Errno::EINTR) => {}
                    _ => return Err(fault(done + moved)),
                }
            }
        }
        done += n;
    }
    Ok(())
}

thread_local! {
    /// The offset of this thread's bytes in the file.
    static PLACE: u64 = {
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % (1 << 20) * PIECE
    };
}

/// The file for copies, one for each process. A child of `fork` using the file of its parent only
/// passes bytes through its own offsets.
fn scratch() -> Option<i32> {
    static FILE: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let made = FILE.get_or_init(|| {
        // SAFETY: a NUL-terminated name and flags; the descriptor is new.
        unsafe {
            let fd = libc::memfd_create(c"adverb-copy".as_ptr(), libc::MFD_CLOEXEC);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
        }
    });
    made.as_ref().map(AsRawFd::as_raw_fd)
}

/// Makes the page of a word writable without changing the word, or returns the fault.
pub(crate) fn populate_for_write(at: Range) -> Result<(), MemoryFault> {
    crate::check_memory(at.addr, u64::from(at.len), true).map_err(|_| MemoryFault { addr: at.addr })
}

/// Sets whether `process_vm_*` counts as forbidden, for tests.
#[cfg(test)]
pub(crate) fn forbid(forbidden: bool) {
    FORBIDDEN.store(forbidden, Ordering::Relaxed);
}
