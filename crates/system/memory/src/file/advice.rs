//! `madvise` for pages of the file, with the effects for private memory.
//!
//! On private memory `MADV_DONTNEED` zeroes the pages, and allocators depend on this. On shared
//! memory it does not. So the preload of `adverb run` passes the program's advice to this file
//! first. The code runs under the locks of allocators: it takes only the table's lock, and
//! allocates nothing.
use super::SharedFile;
use crate::maps::Vma;
use crate::sys;
use std::ffi::c_int;

/// `MADV_DONTNEED_LOCKED`.
const DONTNEED_LOCKED: c_int = 24;
/// `MADV_GUARD_INSTALL` (Linux 6.13): discards the pages. After removal of the guard they read as
/// zeroes.
const GUARD_INSTALL: c_int = 102;
/// The number of ranges with their own advice for a fork: more than one for each block. Untouched
/// room costs nothing.
const RANGES: usize = 1 << 14;

/// What a child gets of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InChild {
    /// Nothing (`MADV_DONTFORK`).
    Absent,
    /// Zeroes (`MADV_WIPEONFORK`).
    Zeroes,
}

/// The program's advice for its children, by file offset, so that the advice follows a moved
/// mapping. The latest advice on a page counts.
#[derive(Debug)]
pub(super) struct Advised(Vec<(u64, u64, InChild)>);

impl Advised {
    pub fn new() -> Self {
        Advised(Vec::with_capacity(RANGES))
    }

    /// Removes the advice on a range.
    pub fn forget(&mut self, start: u64, end: u64) {
        let mut at = 0;
        while at < self.0.len() {
            let (from, to, what) = self.0[at];
            if to <= start || from >= end {
                at += 1;
                continue;
            }
            self.0.swap_remove(at);
            for (from, to) in [(from, start), (end, to)] {
                if from < to {
                    self.add(from, to, what);
                }
            }
        }
    }

    /// Without room the advice is dropped. A child then gets an unwanted copy, on which it does not
    /// depend.
    fn add(&mut self, start: u64, end: u64, what: InChild) {
        if self.0.len() < self.0.capacity() {
            self.0.push((start, end, what));
        }
    }

    /// The advice at a file offset, and the next offset with other advice, at most `end`.
    pub fn at(&self, at: u64, end: u64) -> (Option<InChild>, u64) {
        let inside = self.0.iter().find(|(from, to, _)| (*from..*to).contains(&at));
        let next =
            self.0.iter().map(|(from, ..)| *from).filter(|from| *from > at).min().unwrap_or(end);
        match inside {
            Some((_, to, what)) => (Some(*what), (*to).min(end)),
            None => (None, next.min(end)),
        }
    }
}

/// Performs a call of `madvise`. Returns the errno for the program, 0 for success.
pub extern "C" fn advise(addr: u64, len: usize, advice: c_int) -> c_int {
    let len = len as u64;
    let as_it_stands = || raw(addr, len, advice);
    let end =
        addr.checked_add(len).and_then(|end| end.checked_next_multiple_of(crate::page_size()));
    let (Some(end), Some(file)) = (end, SharedFile::outside()) else { return as_it_stands() };
    if !addr.is_multiple_of(crate::page_size()) || !matters(advice) || !file.maps_any(addr, end) {
        return as_it_stands();
    }
    match advice {
        // Private memory has no such advice, and keeps its contents.
        libc::MADV_REMOVE => libc::EINVAL,
        _ => file.advise_parts(addr, end, advice),
    }
}

/// The program's own call, for its range or a part.
fn raw(start: u64, len: u64, advice: c_int) -> c_int {
    // SAFETY: the program's own advice for its own memory.
    unsafe { sys::advise(start, len, advice) }.map_or_else(|errno| errno as c_int, |()| 0)
}

/// Whether shared and private memory react to this advice in different ways.
fn matters(advice: c_int) -> bool {
    matches!(
        advice,
        libc::MADV_DONTNEED
            | DONTNEED_LOCKED
            | GUARD_INSTALL
            | libc::MADV_FREE
            | libc::MADV_REMOVE
            | libc::MADV_HUGEPAGE
            | libc::MADV_DONTFORK
            | libc::MADV_DOFORK
            | libc::MADV_WIPEONFORK
            | libc::MADV_KEEPONFORK
    )
}

impl SharedFile {
    pub(super) fn maps_any(&self, start: u64, end: u64) -> bool {
        let mut any = false;
        let _ = self.maps.walk(start, end, |vma| {
            any = vma.file == self.id;
            !any
        });
        any
    }

    /// Calls `each` with the parts of the file mapped in the range.
    pub(super) fn each_own(&self, start: u64, end: u64, mut each: impl FnMut(&Vma)) {
        let _ = self.maps.walk(start, end, |vma| {
            if vma.file == self.id {
                each(&part(vma, start, end));
            }
            true
        });
    }

    /// Zeroes a part of the file where it is mapped.
    fn zero(&self, vma: &Vma) {
        if vma.shares(self.id) {
            if sys::punch(self.raw_fd(), vma.offset, vma.len()).is_err() {
                // SAFETY: the program has given up the contents. With the descriptor closed, the
                // mapping is the only way to the file.
                let _ = unsafe { sys::advise(vma.start, vma.len(), libc::MADV_REMOVE) };
            }
        } else {
            // SAFETY: the program has given up the contents. A child may be reading the same page
            // of the file, so a new mapping replaces this one.
            let _ = unsafe { sys::map_zeroes(vma.start, vma.len(), vma.prot()) };
        }
    }

    /// Applies the advice to the file's parts of a range, and passes the other parts to the kernel.
    fn advise_parts(&'static self, start: u64, end: u64, advice: c_int) -> c_int {
        let mut errno = 0;
        let mut at = start;
        let walked = self.maps.walk(start, end, |vma| {
            let vma = part(vma, start, end);
            if vma.start > at {
                errno = libc::ENOMEM;
            }
            at = vma.end;
            let failed = match vma.file == self.id {
                true => self.advise_own(&vma, advice),
                false => raw(vma.start, vma.len(), advice),
            };
            errno = if failed == 0 { errno } else { failed };
            failed == 0 || failed == libc::ENOMEM
        });
        match walked {
            Ok(()) if errno == 0 && at < end => libc::ENOMEM,
            Ok(()) => errno,
            Err(e) => e.raw_os_error().unwrap_or(libc::EIO),
        }
    }

    fn advise_own(&'static self, vma: &Vma, advice: c_int) -> c_int {
        let (start, end) = (vma.offset, vma.offset_end());
        match advice {
            libc::MADV_DONTNEED | DONTNEED_LOCKED | GUARD_INSTALL | libc::MADV_FREE => {
                // Discarding at once is a valid form of `MADV_FREE`. Locked memory refuses both.
                let now = if advice == libc::MADV_FREE { libc::MADV_DONTNEED } else { advice };
                let errno = raw(vma.start, vma.len(), now);
                if errno == 0 {
                    self.zero(vma);
                }
                return errno;
            }
            libc::MADV_HUGEPAGE => {
                self.want_huge(vma);
                return raw(vma.start, vma.len(), advice);
            }
            libc::MADV_DONTFORK | libc::MADV_WIPEONFORK => {
                let what =
                    if advice == libc::MADV_DONTFORK { InChild::Absent } else { InChild::Zeroes };
                let mut table = self.table();
                table.advised.forget(start, end);
                table.advised.add(start, end, what);
                self.mark(&table, start);
            }
            _ => self.table().advised.forget(start, end),
        }
        0
    }
}

/// The part of a mapping within `[start, end)`.
fn part(vma: &Vma, start: u64, end: u64) -> Vma {
    let from = vma.start.max(start);
    Vma { start: from, end: vma.end.min(end), offset: vma.offset + (from - vma.start), ..*vma }
}

/// `process_madvise` on this process itself. Returns the bytes advised, or a negative errno.
pub extern "C" fn advise_many(vectors: *const libc::iovec, count: usize, advice: c_int) -> isize {
    let mut done = 0_isize;
    for i in 0..count {
        // SAFETY: the caller guarantees `count` vectors.
        let vector = unsafe { vectors.add(i).read() };
        let errno = advise(vector.iov_base as u64, vector.iov_len, advice);
        if errno != 0 {
            return if done > 0 { done } else { -(errno as isize) };
        }
        done += vector.iov_len.cast_signed();
    }
    done
}
