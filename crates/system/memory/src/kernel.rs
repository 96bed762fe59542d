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
use std::convert::Infallible;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// The direction of a copy, seen from the other memory: the program's, or a peer's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyDirection {
    Out,
    In,
}

impl CopyDirection {
    /// The number of the system call.
    pub fn number(self) -> i64 {
        match self {
            CopyDirection::Out => libc::SYS_process_vm_readv,
            CopyDirection::In => libc::SYS_process_vm_writev,
        }
    }
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

/// Copies between `len` bytes of the program at `theirs`, and `len` bytes at `ours`, which the
/// program may unmap, too.
pub(crate) fn copy(
    way: CopyDirection,
    theirs: u64,
    ours: u64,
    len: u64,
) -> Result<(), MemoryFault> {
    let copied = by_calls(way, theirs, ours, len, u64::MAX, |number, args| {
        // SAFETY: the kernel checks every address on both sides. The bytes written are `ours`
        // (reading), lent by the caller, or memory opened by a key (writing).
        Ok::<_, Infallible>(unsafe { sys::call(number, args) })
    });
    match copied {
        Ok(()) => Ok(()),
        Err(Cut::Forbidden(done)) => by_file(way, theirs + done, ours + done, len - done),
        Err(Cut::Fault(fault)) => Err(fault),
        Err(Cut::Withdrawn(never)) => match never {},
    }
}

/// The most bytes moved by one system call of a guarded copy. An owner that takes memory back waits
/// for the end of such a call.
pub(crate) const AT_ONCE: u64 = 1 << 20;

/// Why a copy ended early. `W`: the error of a guard that does not hold any more.
pub(crate) enum Cut<W> {
    Withdrawn(W),
    /// The kernel forbids the call; this many bytes are copied.
    Forbidden(u64),
    /// The program's memory is missing.
    Fault(MemoryFault),
}

/// As [`copy`], while the guard holds. `ours` is in a peer's file.
pub(crate) fn copy_guarded(
    guard: &Guard<'_>,
    way: CopyDirection,
    theirs: u64,
    ours: u64,
    len: u64,
) -> Result<(), Cut<Withdrawn>> {
    by_calls(way, theirs, ours, len, AT_ONCE, |number, args| {
        // SAFETY: as in `copy`; `ours` lies in a window, which the caller checked.
        unsafe { guard.call(number, args) }
    })
}

/// Copies by system calls of at most `at_once` bytes, which `call` makes.
#[inline]
fn by_calls<W>(
    way: CopyDirection,
    theirs: u64,
    ours: u64,
    len: u64,
    at_once: u64,
    call: impl Fn(i64, [u64; 6]) -> Result<Result<u64, Errno>, W>,
) -> Result<(), Cut<W>> {
    let mut done = 0;
    while done < len {
        if FORBIDDEN.load(Ordering::Relaxed) {
            return Err(Cut::Forbidden(done));
        }
        let iov_len = (len - done).min(at_once) as usize;
        let piece = |addr: u64| libc::iovec { iov_base: addr as *mut libc::c_void, iov_len };
        let (local, remote) = (piece(ours + done), piece(theirs + done));
        let (local, remote) = (&raw const local as u64, &raw const remote as u64);
        match call(way.number(), [sys::pid().into(), local, 1, remote, 1, 0]) {
            Err(withdrawn) => return Err(Cut::Withdrawn(withdrawn)),
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
                // SAFETY: as in `copy`.
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

/// Sets whether `process_vm_*` counts as forbidden, for tests.
#[cfg(test)]
pub(crate) fn forbid(forbidden: bool) {
    FORBIDDEN.store(forbidden, Ordering::Relaxed);
}
