//! Memory shared by a descriptor: made, sealed, verified, mapped.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use adverb_os::sys::Transit;
use libc::{c_int, off_t};

use super::ShmError;

/// Nobody changes the size, so that no access within it ever meets its end; nobody takes or adds
/// seals.
pub(super) const FIXED: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// As [`FIXED`]; and but for mappings that exist nobody writes or punches holes, so that what is
/// there stays there.
pub(super) const READ_ONLY: c_int = FIXED | libc::F_SEAL_FUTURE_WRITE;
/// The size of the smallest huge page of any machine.
pub(super) const SMALLEST_HUGE_PAGE: usize = 64 << 10;
/// Signals may interrupt an allocation so often, each time after some progress.
const INTERRUPTIONS: u32 = 10_000;

fn check(doing: &'static str, result: c_int) -> Result<c_int, ShmError> {
    if result < 0 { Err(ShmError::Os { doing, source: io::Error::last_os_error() }) } else { Ok(result) }
}

/// The system call itself: the function of this name may be the preload's, which counts what
/// programs ask of their memory, and this is none of theirs.
///
/// # Safety
/// That of the C library's function.
unsafe fn madvise(at: NonNull<u8>, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::syscall(libc::SYS_madvise, at.as_ptr(), len, advice) as c_int }
}

/// An anonymous file of the size, without pages and without seals.
pub(super) fn create(len: usize) -> Result<OwnedFd, ShmError> {
    let name = c"adverb";
    // SAFETY: a terminated name and flags.
    let make = |flags| unsafe { libc::memfd_create(name.as_ptr(), flags) };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let mut fd = make(flags | libc::MFD_NOEXEC_SEAL);
    if fd < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        fd = make(flags); // before Linux 6.3
    }
    // SAFETY: a new descriptor that nobody else owns.
    let fd = unsafe { OwnedFd::from_raw_fd(check("create shared memory", fd)?) };
    // SAFETY: plain integers.
    check("size shared memory", unsafe { libc::ftruncate(fd.as_raw_fd(), len as off_t) })?;
    Ok(fd)
}

/// Gives the range its pages, so that no access needs memory that may be missing then.
pub(super) fn allocate(fd: BorrowedFd<'_>, range: Range<usize>) -> Result<(), ShmError> {
    for _ in 0..INTERRUPTIONS {
        // SAFETY: plain integers.
        let result =
            unsafe { libc::fallocate(fd.as_raw_fd(), 0, range.start as off_t, range.len() as off_t) };
        if result == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ENOMEM | libc::ENOSPC) => return Err(ShmError::OutOfMemory { bytes: range.len() }),
            _ => return Err(ShmError::Os { doing: "allocate shared memory", source }),
        }
    }
    Err(ShmError::Os { doing: "allocate shared memory", source: io::ErrorKind::Interrupted.into() })
}

pub(super) fn seal(fd: BorrowedFd<'_>, seals: c_int) -> Result<(), ShmError> {
    // SAFETY: plain integers.
    check("seal shared memory", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) }).map(drop)
}

/// Whether a descriptor from a peer is shared memory of this size with at least these seals.
pub(super) fn verify(fd: BorrowedFd<'_>, len: usize, seals: c_int) -> Result<(), ShmError> {
    // SAFETY: plain integers.
    let found = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) }.max(0);
    if found & seals != seals {
        return Err(ShmError::NotSealed { expected: seals, found });
    }
    // SAFETY: all zeros is a value of this plain structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` has room for the answer.
    check("look at shared memory", unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) })?;
    let (expected, found) = (len as u64, stat.st_size as u64);
    if found == expected { Ok(()) } else { Err(ShmError::WrongSize { expected, found }) }
}

/// Random bits, or the clock's if the kernel has none yet.
pub(super) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer has eight bytes.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64)
}

/// What a mapping may do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A file mapped from its beginning; unmapped when dropped by the process that mapped it.
pub(super) struct Mapping {
    at: NonNull<u8>,
    len: usize,
    /// A child of a fork has no mapping here, and perhaps something of its own.
    process: u32,
}

// SAFETY: plain memory; who accesses it through `as_ptr` says why that is sound from several
// threads.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes, which the file must have for good: sealed, or of our own making.
    pub(super) fn new(fd: BorrowedFd<'_>, len: usize, access: Access) -> Result<Mapping, ShmError> {
        let protection = match access {
            Access::Read => libc::PROT_READ,
            Access::Write => libc::PROT_READ | libc::PROT_WRITE,
        };
        let _transit = Transit::begin();
        // SAFETY: a new mapping at a place the kernel chooses.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, libc::MAP_SHARED, fd.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            let source = io::Error::last_os_error();
            return Err(ShmError::Os { doing: "map shared memory", source });
        }
        let at = NonNull::new(at.cast()).expect("the kernel maps nothing at address 0 unasked");
        let mapping = Mapping { at, len, process: std::process::id() };
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: the range is the mapping's; neither advice changes its content.
            check("keep shared memory from children", unsafe { madvise(at, len, advice) })?;
        }
        Ok(mapping)
    }

    /// Enters all of it into the page table now, where that is possible.
    pub(super) fn populate(&self, access: Access) {
        let advice = match access {
            Access::Read => libc::MADV_POPULATE_READ,
            Access::Write => libc::MADV_POPULATE_WRITE,
        };
        // SAFETY: the range is the mapping's; populating changes no content. Before Linux 5.14 it
        // does nothing.
        unsafe { madvise(self.at, self.len, advice) };
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Are all pages of a range of the file there, so that a look at them takes no memory? Pages
    /// in swap space count as missing.
    pub(super) fn is_there(&self, range: Range<usize>) -> bool {
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let (start, end) = (range.start / page * page, range.end.min(self.len));
        (start..end).step_by(page).all(|at| {
            let mut there = 0_u8;
            // SAFETY: a page of the mapping, which begins with one; the kernel writes one byte.
            let asked = unsafe {
                let page_at = self.at.as_ptr().add(at);
                libc::syscall(libc::SYS_mincore, page_at, 1_usize, &raw mut there)
            };
            asked == 0 && there & 1 == 1
        })
    }

    /// Puts zeroes of this process's own in place of the file, which may only be read here. The
    /// file is not mapped any more; the address range stays. A load by another thread finds the
    /// old bytes or zero: the kernel exchanges the mappings in one step.
    pub(super) fn let_go(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: exactly the range of the mapping, which stays mapped throughout. All accesses to
        // it are loads of atomics, for which any bytes are a value.
        let done = self.is_ours()
            && unsafe {
                let at = self.at.as_ptr();
                let (offset, nothing) = (0_usize, -1_isize);
                libc::syscall(libc::SYS_mmap, at, self.len, libc::PROT_READ, flags, nothing, offset)
            } == self.at.as_ptr() as i64;
        if !done {
            log::debug!("a mapping of shared memory stays: {}", io::Error::last_os_error());
        }
    }

    /// Whether this is the process that mapped it, and not a child of it.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.process
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: mapped by `new` in this process; nobody has a pointer into it any more.
            unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
        }
    }
}
