//! Memory behind a descriptor: a DMA-BUF, or a file such as a memfd, mapped for the device.
use crate::sys::{self, At};
use adverb_engine::memory::RangeKind;
use nix::errno::Errno;
use std::os::fd::RawFd;

/// File systems, by `f_type` of `statfs` (`linux/magic.h`).
const DMA_BUF_MAGIC: libc::__fsword_t = 0x444d_4142;
const HUGETLBFS_MAGIC: libc::__fsword_t = 0x9584_58f6;

/// A part of a descriptor's memory in a mapping of the device. The mapping stays when the
/// descriptor is closed, and a child of `fork` does not inherit it. Unmapped on drop.
#[derive(Debug)]
pub struct FdPages {
    start: u64,
    mapped: u64,
    /// The first address.
    pub addr: u64,
    /// The length in bytes.
    pub len: u64,
    /// Whether the memory is a DMA-BUF. The size of a DMA-BUF never changes, and the kernel's
    /// copying calls do not work on its mappings. A file may be truncated at any time.
    pub dma_buf: bool,
}

/// Why mapping a descriptor's memory failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdError {
    /// No such descriptor, or not opened with the access requested.
    Descriptor(Errno),
    /// The descriptor has no memory to map.
    NoMemory(Errno),
    /// The memory has only this many bytes.
    Short(u64),
}

impl FdPages {
    /// Maps `len` bytes, at least one, at `offset` of a descriptor's memory.
    ///
    /// # Errors
    /// [`FdError`].
    pub fn new(fd: RawFd, offset: u64, len: u64, writable: bool) -> Result<Self, FdError> {
        // SAFETY: all zeroes is a valid `statfs`, filled by the call.
        let (about, done) = unsafe {
            let mut about: libc::statfs = std::mem::zeroed();
            let done = libc::fstatfs(fd, &raw mut about);
            (about, done)
        };
        if done != 0 {
            return Err(FdError::Descriptor(Errno::last()));
        }
        let dma_buf = about.f_type == DMA_BUF_MAGIC;
        let size = size_of(fd, dma_buf).map_err(FdError::NoMemory)?;
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(FdError::Short(size));
        }
        // The unit of mappings: a page, or a huge page on hugetlbfs.
        let unit = match about.f_type {
            HUGETLBFS_MAGIC => about.f_bsize as u64,
            _ => crate::page_size(),
        };
        let (from, within) = (offset - offset % unit, offset % unit);
        let mapped = (within + len).checked_next_multiple_of(unit).ok_or(FdError::Short(size))?;
        let prot = if writable { sys::RW } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let start =
            unsafe { sys::map(At::Anywhere, mapped, prot, libc::MAP_SHARED, Some((fd, from))) }
                .map_err(|e| match e {
                    Errno::EACCES | Errno::EPERM => FdError::Descriptor(e),
                    e => FdError::NoMemory(e),
                })?;
        // SAFETY: the mapping made just now; the advice changes no contents.
        let _ = unsafe { sys::advise(start, mapped, libc::MADV_DONTFORK) };
        Ok(FdPages { start, mapped, addr: start + within, len, dma_buf })
    }
    /// The kind of ranges in this memory.
    #[must_use]
    pub fn range_kind(&self) -> RangeKind {
        if self.dma_buf { RangeKind::Mapped } else { RangeKind::OnDemand }
    }
}

impl Drop for FdPages {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; no reference into it was given out.
        let _ = unsafe { sys::unmap(self.start, self.mapped) };
    }
}

/// The size of a descriptor's memory in bytes. For a DMA-BUF only seeking tells the size.
fn size_of(fd: RawFd, dma_buf: bool) -> Result<u64, Errno> {
    if dma_buf {
        // SAFETY: no memory is passed. The position of a DMA-BUF has no meaning.
        let end = unsafe { libc::lseek(fd, 0, libc::SEEK_END) };
        return u64::try_from(end).map_err(|_| Errno::last());
    }
    let about = sys::attributes(fd)?;
    if about.st_mode & libc::S_IFMT != libc::S_IFREG {
        return Err(Errno::ENODEV);
    }
    Ok(about.st_size as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostMemory;
    use adverb_engine::{Memory, Range};
    use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

    fn memfd(len: i64) -> OwnedFd {
        // SAFETY: a NUL-terminated name; the descriptor is new and ours.
        unsafe {
            let fd = libc::memfd_create(c"fd-test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            assert_eq!(libc::ftruncate(fd, len), 0);
            OwnedFd::from_raw_fd(fd)
        }
    }

    #[test]
    fn bytes_of_a_file_are_reached_after_its_descriptor_is_closed() {
        let fd = memfd(12288);
        let pages = FdPages::new(fd.as_raw_fd(), 4100, 5000, true).unwrap();
        let again = FdPages::new(fd.as_raw_fd(), 0, 12288, false).unwrap();
        drop(fd);
        let range =
            |p: &FdPages, at: u64| Range { addr: p.addr + at, len: 4, kind: p.range_kind() };
        HostMemory.write(range(&pages, 4996), b"last").unwrap();
        let mut got = [0; 4];
        HostMemory.read(range(&again, 4100 + 4996), &mut got).unwrap();
        assert_eq!(&got, b"last");
        assert!(HostMemory.write(range(&again, 0), b"none").is_err(), "mapped for reading");
    }

    #[test]
    fn a_file_that_is_cut_is_an_error_of_the_access() {
        let fd = memfd(8192);
        let pages = FdPages::new(fd.as_raw_fd(), 0, 8192, true).unwrap();
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), 0) }, 0);
        let range = Range { addr: pages.addr, len: 4, kind: pages.range_kind() };
        assert!(HostMemory.read(range, &mut [0; 4]).is_err());
    }

    #[test]
    fn what_has_no_memory_says_so() {
        assert_eq!(FdPages::new(-1, 0, 1, true).unwrap_err(), FdError::Descriptor(Errno::EBADF));
        let fd = memfd(4096);
        assert_eq!(FdPages::new(fd.as_raw_fd(), 1, 4096, true).unwrap_err(), FdError::Short(4096));
        let (end, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let why = FdPages::new(end.as_raw_fd(), 0, 1, true).unwrap_err();
        assert_eq!(why, FdError::NoMemory(Errno::ENODEV));
    }
}
