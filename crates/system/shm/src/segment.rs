//! Shared memory behind a descriptor: creating, sealing, verifying and mapping a segment.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use adverb_os::sys::Transit;
use libc::{c_int, off_t};

use super::ShmError;

/// Seals against a change of the size and against new seals. With a fixed size, no access within
/// the segment can reach past the end of the file.
pub(super) const FIXED: c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// As [`FIXED`], and no new writes. Only existing mappings can write. Holes cannot be punched, so
/// allocated pages stay allocated.
pub(super) const READ_ONLY: c_int = FIXED | libc::F_SEAL_FUTURE_WRITE;
/// The smallest huge page size of any supported machine.
pub(super) const SMALLEST_HUGE_PAGE: usize = 64 << 10;
/// How often [`allocate`] retries after EINTR. Each attempt makes some progress before a signal
/// interrupts it.
const INTERRUPTIONS: u32 = 10_000;

fn check(doing: &'static str, result: c_int) -> Result<c_int, ShmError> {
    let failed = || ShmError::Os { doing, source: io::Error::last_os_error() };
    if result < 0 { Err(failed()) } else { Ok(result) }
}

/// `madvise` by its system call number. The function of the same name may be the preload library's,
/// which counts the advice of the program. This call is not the program's.
///
/// # Safety
/// As for the C library's `madvise`.
unsafe fn madvise(at: NonNull<u8>, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller keeps the contract of `madvise`.
    unsafe { libc::syscall(libc::SYS_madvise, at.as_ptr(), len, advice) as c_int }
}

/// An anonymous file of `len` bytes, without pages and without seals.
pub(super) fn create(len: usize) -> Result<OwnedFd, ShmError> {
    let name = c"adverb";
    // SAFETY: the name is NUL-terminated, and the flags are integers.
    let make = |flags| unsafe { libc::memfd_create(name.as_ptr(), flags) };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let mut fd = make(flags | libc::MFD_NOEXEC_SEAL);
    if fd < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        fd = make(flags); // Linux before 6.3 has no MFD_NOEXEC_SEAL
    }
    // SAFETY: a new descriptor with no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(check("create shared memory", fd)?) };
    // SAFETY: all arguments are integers.
    check("size shared memory", unsafe { libc::ftruncate(fd.as_raw_fd(), len as off_t) })?;
    Ok(fd)
}

/// Allocates the pages of the range, so that no later access can fail for lack of memory.
pub(super) fn allocate(fd: BorrowedFd<'_>, range: Range<usize>) -> Result<(), ShmError> {
    for _ in 0..INTERRUPTIONS {
        // SAFETY: all arguments are integers.
        let result = unsafe {
            libc::fallocate(fd.as_raw_fd(), 0, range.start as off_t, range.len() as off_t)
        };
        if result == 0 {
            return Ok(());
        }
        let source = io::Error::last_os_error();
        match source.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::ENOMEM | libc::ENOSPC) => {
                return Err(ShmError::OutOfMemory { bytes: range.len() });
            }
            _ => return Err(ShmError::Os { doing: "allocate shared memory", source }),
        }
    }
    Err(ShmError::Os { doing: "allocate shared memory", source: io::ErrorKind::Interrupted.into() })
}

pub(super) fn seal(fd: BorrowedFd<'_>, seals: c_int) -> Result<(), ShmError> {
    // SAFETY: all arguments are integers.
    check("seal shared memory", unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) })
        .map(drop)
}

/// Checks that a peer's descriptor is shared memory of this size with at least these seals.
pub(super) fn verify(fd: BorrowedFd<'_>, len: usize, seals: c_int) -> Result<(), ShmError> {
    // SAFETY: all arguments are integers.
    let found = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GET_SEALS) }.max(0);
    if found & seals != seals {
        return Err(ShmError::NotSealed { expected: seals, found });
    }
    // SAFETY: all zeros is a valid value of this plain structure.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` has room for the answer.
    check("look at shared memory", unsafe { libc::fstat(fd.as_raw_fd(), &mut stat) })?;
    let (expected, found) = (len as u64, stat.st_size as u64);
    if found == expected { Ok(()) } else { Err(ShmError::WrongSize { expected, found }) }
}

/// A random number. The clock replaces it if the kernel has no random bits yet.
pub(super) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the buffer has eight bytes.
    let got =
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_nanos() as u64)
}

/// The access rights of a mapping for reading and writing.
pub(super) const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

/// A file mapped from its beginning. `drop` unmaps it, and only in the process of [`Mapping::new`].
pub(super) struct Mapping {
    at: NonNull<u8>,
    len: usize,
    /// The process that made the mapping. The child of a fork has no mapping at this address, and
    /// may have mapped something else there.
    process: u32,
}

// SAFETY: plain memory. Each user of `as_ptr` states why its access from several threads is sound.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the first `len` bytes. The file must keep this size: the file is sealed, or this
    /// process created the file.
    pub(super) fn new(fd: BorrowedFd<'_>, len: usize, access: c_int) -> Result<Mapping, ShmError> {
        let _transit = Transit::begin();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe {
            libc::mmap(ptr::null_mut(), len, access, libc::MAP_SHARED, fd.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            let source = io::Error::last_os_error();
            return Err(ShmError::Os { doing: "map shared memory", source });
        }
        let at = NonNull::new(at.cast()).expect("the kernel maps nothing at address 0 unasked");
        let mapping = Mapping { at, len, process: std::process::id() };
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: the range is exactly the mapping; neither advice changes its content.
            check("keep shared memory from children", unsafe { madvise(at, len, advice) })?;
        }
        Ok(mapping)
    }

    /// Enters all pages of a writable mapping into the page table now, where the kernel can do so.
    pub(super) fn populate(&self) {
        // SAFETY: the range is exactly the mapping; populating changes no content. Linux before
        // 5.14 refuses the advice.
        unsafe { madvise(self.at, self.len, libc::MADV_POPULATE_WRITE) };
    }

    #[inline]
    pub(super) fn as_ptr(&self) -> *mut u8 {
        self.at.as_ptr()
    }

    /// Whether all pages of a range of the file are present, so that reading the range allocates
    /// nothing. Pages in swap space count as missing.
    pub(super) fn is_there(&self, range: Range<usize>) -> bool {
        // SAFETY: sysconf has no preconditions.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let (start, end) = (range.start / page * page, range.end.min(self.len));
        (start..end).step_by(page).all(|at| {
            let mut there = 0_u8;
            // SAFETY: a page of the mapping, at a page boundary; the kernel writes one byte.
            let asked = unsafe {
                let page_at = self.at.as_ptr().add(at);
                libc::syscall(libc::SYS_mincore, page_at, 1_usize, &raw mut there)
            };
            asked == 0 && there & 1 == 1
        })
    }

    /// Replaces the mapping of the file by private zero pages at the same addresses. The mapping
    /// must be read-only. A concurrent load by another thread finds the old bytes or zero, because
    /// the kernel exchanges the mappings in one step.
    pub(super) fn let_go(&self) {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: exactly the range of the mapping, and the range stays mapped throughout. All
        // accesses to the range are loads of atomics, for which any bytes are a valid value.
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

    /// Whether the calling process made the mapping; false in a forked child.
    pub(super) fn is_ours(&self) -> bool {
        std::process::id() == self.process
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: `new` mapped the range in this process, and no pointer into the range is
            // left.
            unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
        }
    }
}
