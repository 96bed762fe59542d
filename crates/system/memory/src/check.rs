//! Checks at registration whether memory is mapped, as pinning in a driver does.
use crate::sys::{self, page_size};
use libc::{MADV_POPULATE_READ, MADV_POPULATE_WRITE};
use nix::errno::Errno;
use std::sync::OnceLock;
use thiserror::Error;

/// Registration of memory that is not mapped, or not with the access requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MemoryCheckError {
    /// Part of the range is not mapped, or not readable or writable as needed (EFAULT).
    #[error("part of the range is not mapped with the access asked for")]
    NotMapped,
    /// The pages could not be allocated: out of memory, or a limit (ENOMEM).
    #[error("the pages could not be brought into memory")]
    OutOfMemory,
}

/// Shorter ranges are populated without checking the available memory.
const MUCH: u64 = 64 << 20;

/// Bytes of a range that are not in memory. The length may be absurd: the search ends at the first
/// hole.
///
/// # Errors
/// ENOMEM if part of the range is not mapped. Another errno if the kernel refuses the question.
fn missing(start: u64, end: u64, page: u64) -> Result<u64, Errno> {
    const PAGES: u64 = 4096;
    let mut state = [0; PAGES as usize];
    let (mut at, mut missing) = (start, 0);
    while at < end {
        let bytes = (end - at).min(PAGES * page);
        sys::in_memory(at, bytes, &mut state)?;
        let pages = &state[..(bytes / page) as usize];
        missing += pages.iter().filter(|state| **state & 1 == 0).count() as u64 * page;
        at += bytes;
    }
    Ok(missing)
}

/// Populates the pages of `[addr, addr + len)`, readable or writable, and so checks whether they
/// are mapped. Contents never change. On kernels before 5.14 it only checks whether the range is
/// mapped at all.
pub fn check_memory(addr: u64, len: u64, writable: bool) -> Result<(), MemoryCheckError> {
    if len == 0 {
        return Ok(());
    }
    let page = page_size();
    let start = addr & !(page - 1);
    let end = addr
        .checked_add(len)
        .and_then(|e| e.checked_add(page - 1))
        .ok_or(MemoryCheckError::NotMapped)?
        & !(page - 1);
    // Memory exceeding the machine would end some process (MEM-5). Pages that are read and were
    // never written cost nothing.
    if writable && end - start >= MUCH {
        match missing(start, end, page) {
            Ok(missing) if missing > crate::room::available() => {
                return Err(MemoryCheckError::OutOfMemory);
            }
            Err(Errno::ENOMEM) => return Err(MemoryCheckError::NotMapped),
            _ => {}
        }
    }
    let advice = if writable { MADV_POPULATE_WRITE } else { MADV_POPULATE_READ };
    for _ in 0..16 {
        // SAFETY: populating changes no contents and unmaps nothing, whatever the range; a bad
        // range is an error.
        let Err(errno) = (unsafe { sys::advise(start, end - start, advice) }) else {
            return Ok(());
        };
        match errno {
            Errno::EINTR | Errno::EAGAIN => {}
            // EINVAL means "not with this access", or, on kernels before 5.14, "unknown advice".
            Errno::EINVAL if has_populate() => return Err(MemoryCheckError::NotMapped),
            Errno::EINVAL => return check_old(start, end, page),
            Errno::EFAULT | Errno::EHWPOISON => return Err(MemoryCheckError::NotMapped),
            // ENOMEM means "not mapped" or "no memory"; mincore tells the two apart.
            Errno::ENOMEM => {
                return check_old(start, end, page).and(Err(MemoryCheckError::OutOfMemory));
            }
            _ => return Err(MemoryCheckError::NotMapped),
        }
    }
    check_old(start, end, page)
}

/// Whether the kernel knows the advice. Tested on a page that is certainly mapped: the stack's.
fn has_populate() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let here = 0u8;
        let page = (&raw const here as u64) & !(page_size() - 1);
        // SAFETY: populating for reading changes nothing.
        unsafe { sys::advise(page, page_size(), MADV_POPULATE_READ) }.is_ok()
    })
}

/// Whether the range is mapped, whatever the access.
fn check_old(start: u64, end: u64, page: u64) -> Result<(), MemoryCheckError> {
    missing(start, end, page).map(drop).map_err(|_| MemoryCheckError::NotMapped)
}
