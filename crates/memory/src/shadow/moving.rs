//! Moving pages into the file and back, while nobody else touches them.
//!
//! Between the copy of a page and its new mapping a write to it would be lost. What runs here therefore touches nothing but its
//! own stack: no heap, no locks, no log. Every step either keeps the contents where they were or has them in the file.
use nix::errno::Errno;
use std::os::fd::RawFd;

/// What is moved at a time: small enough to stay in the processor's cache between one copy and the next use, and to need
/// little memory beyond what there was.
pub(super) const CHUNK: u64 = 1 << 20;

const RW: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

/// Every signal blocked for this thread, those of the C library's own included, until dropped.
pub(super) struct Undisturbed(u64);

impl Undisturbed {
    pub fn new() -> Self {
        let (all, mut old) = (u64::MAX, 0_u64);
        // SAFETY: two masks of the size given; the C library's function would spare its own signals, which cancel threads.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_BLOCK,
                &raw const all,
                &raw mut old,
                size_of::<u64>(),
            );
        }
        Undisturbed(old)
    }
}

impl Drop for Undisturbed {
    fn drop(&mut self) {
        let (old, none) = (self.0, std::ptr::null_mut::<u64>());
        // SAFETY: as in `new`.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigprocmask,
                libc::SIG_SETMASK,
                &raw const old,
                none,
                size_of::<u64>(),
            );
        }
    }
}

/// Moves private anonymous pages into the file, at the offset that is their address, and maps them back in place. On failure some
/// may have moved: each page is either as it was or mapped from the file.
///
/// # Safety
/// `[start, end)` are whole pages of private anonymous memory, readable and writable, which nobody writes to meanwhile.
/// The file `fd` covers all addresses.
pub(super) unsafe fn move_in(fd: RawFd, start: u64, end: u64) -> Result<(), Errno> {
    let mut at = start;
    while at < end {
        let next = next_part(start, at, end);
        // SAFETY: a part of the range.
        let moved = unsafe { copy_to_file(fd, at, at, next - at).and_then(|()| map_file(fd, at, next)) };
        if moved.is_err() {
            punch(fd, at, next);
            return moved;
        }
        if at == start {
            set_apart(start, end)?;
        }
        at = next;
    }
    Ok(())
}

/// Where the part of a run ends that moves into the file next: the first page goes alone, to be [`set_apart`] before others follow.
pub(super) fn next_part(start: u64, at: u64, end: u64) -> u64 {
    let next = if at == start { start + crate::page_size() } else { (at / CHUNK + 1) * CHUNK };
    end.min(next)
}

/// Makes the first page of a run, which has just been mapped from the file, a mapping of its own, by advice that means nothing to this
/// file. For `mremap`, which the C library's `realloc` calls for large blocks, makes a mapping longer by the file's next pages, and
/// those are of the block's neighbour in memory. What is of two mappings it refuses to make longer, and `realloc` copies.
///
/// A page alone cannot be two mappings. So that a block registered page by page is some, every other group of pages gets the advice;
/// the blocks in question are longer than two groups.
pub(super) fn set_apart(start: u64, end: u64) -> Result<(), Errno> {
    const GROUP: u64 = 16;
    let page = crate::page_size();
    if end - start == page && (start / (GROUP * page)).is_multiple_of(2) {
        return Ok(());
    }
    // SAFETY: changes no contents. Not through the C library, whose function may be stood in for.
    Errno::result(unsafe { libc::syscall(libc::SYS_madvise, start, page, libc::MADV_RANDOM) }).map(drop)
}

/// Makes pages of the file, mapped at the address that is their offset, private again. On failure answers how far it came; the
/// rest is as it was.
///
/// # Safety
/// `[start, end)` maps these pages of the file with the rights `prot`, and nobody writes to them meanwhile.
pub(super) unsafe fn move_out(
    fd: RawFd,
    start: u64,
    end: u64,
    prot: libc::c_int,
) -> Result<(), (u64, Errno)> {
    let mut at = start;
    while at < end {
        let next = end.min((at / CHUNK + 1) * CHUNK);
        // SAFETY: the contents are in the file, so that the mapping can be replaced, and be brought back.
        unsafe {
            private_copy(fd, at, next, at, prot).map_err(|errno| (at, errno))?;
        }
        punch(fd, at, next);
        at = next;
    }
    Ok(())
}

/// Replaces the mapping `[start, end)` by private memory with what the file holds from `offset`.
///
/// # Safety
/// The range maps that part of the file, with the rights `prot`, and nobody writes to it meanwhile.
pub(super) unsafe fn private_copy(
    fd: RawFd,
    start: u64,
    end: u64,
    offset: u64,
    prot: libc::c_int,
) -> Result<(), Errno> {
    let len = (end - start) as usize;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the caller gives up the mapping, whose contents stay in the file.
    unsafe { map(start, len, RW, flags, -1, 0) }?;
    let mut done = 0;
    while done < len {
        // SAFETY: reads into the fresh pages.
        let n = unsafe {
            libc::pread(
                fd,
                (start as usize + done) as *mut libc::c_void,
                len - done,
                (offset as usize + done) as i64,
            )
        };
        if n <= 0 {
            let errno = if n < 0 { Errno::last() } else { Errno::EIO };
            if errno == Errno::EINTR {
                continue;
            }
            // SAFETY: puts back what was there.
            unsafe { map(start, len, prot, libc::MAP_SHARED | libc::MAP_FIXED, fd, offset) }?;
            return Err(errno);
        }
        done += n.cast_unsigned();
    }
    if prot != RW {
        // SAFETY: the rights the mapping had.
        unsafe { libc::mprotect(start as *mut libc::c_void, len, prot) };
    }
    Ok(())
}

/// Copies `len` bytes of mapped memory at `from` into the file, at `offset`.
///
/// # Safety
/// Nobody writes to the memory meanwhile.
pub(super) unsafe fn copy_to_file(fd: RawFd, from: u64, offset: u64, len: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < len {
        let (here, there) = ((from + done) as *const libc::c_void, (offset + done).cast_signed());
        // SAFETY: reads memory; the kernel answers with an error where it cannot.
        let n = unsafe { libc::pwrite(fd, here, (len - done) as usize, there) };
        match n {
            1.. => done += n.cast_unsigned() as u64,
            0 => return Err(Errno::ENOSPC),
            _ if Errno::last() == Errno::EINTR => {}
            _ => return Err(Errno::last()),
        }
    }
    Ok(())
}

/// Maps the file over `[start, end)`.
///
/// # Safety
/// The file holds the contents of the range, which nobody writes to meanwhile.
pub(super) unsafe fn map_file(fd: RawFd, start: u64, end: u64) -> Result<(), Errno> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE;
    // SAFETY: the caller's.
    unsafe { map(start, (end - start) as usize, RW, flags, fd, start) }
}

/// `mmap` at a fixed address. When it fails the old mapping is there still: the kernel looks at its limits before it takes
/// anything away. Should it ever not be, the program's memory would be gone, so there is no going on.
unsafe fn map(
    start: u64,
    len: usize,
    prot: libc::c_int,
    flags: libc::c_int,
    fd: RawFd,
    offset: u64,
) -> Result<(), Errno> {
    for _ in 0..3 {
        // SAFETY: the caller's.
        let at =
            unsafe { libc::mmap(start as *mut libc::c_void, len, prot, flags, fd, offset.cast_signed()) };
        if at != libc::MAP_FAILED {
            return Ok(());
        }
        let errno = Errno::last();
        // SAFETY: a synchronisation of nothing: asks whether all of the range is mapped.
        if unsafe { libc::msync(start as *mut libc::c_void, len, libc::MS_ASYNC) } == 0 {
            return Err(errno);
        }
    }
    std::process::abort();
}

/// Gives the file's pages in a range back to the system.
pub(super) fn punch(fd: RawFd, start: u64, end: u64) {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    for _ in 0..16 {
        // SAFETY: concerns the file alone.
        let rc = unsafe { libc::fallocate(fd, mode, start.cast_signed(), (end - start).cast_signed()) };
        if rc == 0 || Errno::last() != Errno::EINTR {
            return;
        }
    }
}
