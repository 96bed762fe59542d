//! Memory of our own that peers may map.
use super::{SPAN, Shadow};
use nix::errno::Errno;

/// Places that are looked at for new pages.
const TRIES: usize = 16;

/// Zeroed pages in the file, mapped where their offset is. Dropped, they are unmapped, and freed when no registration stands on
/// them any more.
#[derive(Debug)]
pub(crate) struct OwnPages {
    shadow: &'static Shadow,
    start: u64,
    end: u64,
}

impl OwnPages {
    /// First address.
    pub fn addr(&self) -> u64 {
        self.start
    }
}

/// Addresses of the kernel's choice, that nothing else gets until this is dropped.
struct Reserved {
    start: u64,
    end: u64,
}

impl Reserved {
    fn new(len: u64) -> Result<Self, Errno> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a reservation at an address of the kernel's choice disturbs nothing.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, libc::PROT_NONE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Reserved { start: at as u64, end: at as u64 + len })
    }

    /// Gives the rest back; the part is the caller's from now on.
    fn keep(self, start: u64, end: u64) -> (u64, u64) {
        for (from, to) in [(self.start, start), (end, self.end)] {
            unmap(from, to);
        }
        std::mem::forget(self);
        (start, end)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        unmap(self.start, self.end);
    }
}

/// Unmaps a part of a reservation that nobody knows of.
fn unmap(start: u64, end: u64) {
    if start < end {
        // SAFETY: the callers' alone.
        unsafe { libc::munmap(start as *mut libc::c_void, (end - start) as usize) };
    }
}

impl Shadow {
    /// At least `len` zeroed bytes that peers may map, aligned to `align` and to a page.
    pub(crate) fn pages(&'static self, len: usize, align: usize) -> Result<OwnPages, Errno> {
        let page = crate::page_size();
        if !align.is_power_of_two() || !self.is_ours() {
            return Err(Errno::EINVAL);
        }
        let align = (align as u64).max(page);
        let len = (len.max(1) as u64).checked_next_multiple_of(page).ok_or(Errno::ENOMEM)?;
        super::hazards::unlimited_files().map_err(|_| Errno::EFBIG)?;
        let room = len.checked_add(align - page).ok_or(Errno::ENOMEM)?;
        // Reservations where pages of the program's lie in the file that it has elsewhere now.
        let mut taken = Vec::new();
        let made = loop {
            let reserved = Reserved::new(room)?;
            let start = reserved.start.next_multiple_of(align);
            let end = start + len;
            if reserved.end > SPAN {
                break Err(Errno::ENOMEM);
            }
            if self.vacate(&mut self.state.lock(), start, end) {
                break self.fill(start, end).map(|()| reserved.keep(start, end));
            }
            taken.push(reserved);
            if taken.len() == TRIES {
                break Err(Errno::ENOMEM);
            }
        };
        let (start, end) = made?;
        self.widen(start, end);
        self.state.lock().counts.share(start, end);
        Ok(OwnPages { shadow: self, start, end })
    }

    /// Brings the pages in and maps them over their reservation.
    fn fill(&self, start: u64, end: u64) -> Result<(), Errno> {
        let (fd, len) = (self.raw_fd(), (end - start) as usize);
        // First, so that a shortage is an error here and not a signal later.
        // SAFETY: concerns the file alone.
        let mut rc = unsafe { libc::fallocate(fd, 0, start.cast_signed(), len as i64) };
        if rc == 0 {
            let (prot, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE);
            // SAFETY: over a reservation of ours.
            let at =
                unsafe { libc::mmap(start as *mut libc::c_void, len, prot, flags, fd, start.cast_signed()) };
            rc = if at == libc::MAP_FAILED { -1 } else { 0 };
        }
        Errno::result(rc).map(drop).inspect_err(|_| super::moving::punch(fd, start, end))
    }
}

impl Drop for OwnPages {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, or in a child the private copy in its place; no reference into it was given out.
        unsafe { libc::munmap(self.start as *mut libc::c_void, (self.end - self.start) as usize) };
        self.shadow.unshare(self.start, self.end);
    }
}
