//! `mremap` for pages of the file, with the effects for private memory.
//!
//! A growing mapping of a file shows the next pages of the file: pages cut off before, or pages of
//! a neighbour split off before. A mapping moved with `MREMAP_DONTUNMAP` shows the same pages
//! twice. Private memory shows zeroes in both cases. So the preload of `adverb run` passes the
//! program's calls to this file first.
use super::blocks::Block;
use super::data::{each_data, fill};
use super::{BLOCKS_FROM, SharedFile};
use crate::kernel::CopyDirection;
use crate::maps::{Vma, WRITE};
use crate::sys::{self, At, RW};
use libc::MADV_POPULATE_WRITE as POPULATE_WRITE;
use nix::errno::Errno;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

/// Performs a call of `mremap`. Returns the address, or a negative errno.
pub extern "C" fn remap(addr: u64, old: u64, new: u64, flags: c_int, to: u64) -> i64 {
    // SAFETY: the program's own call, unchanged.
    let raw = || match unsafe { sys::remap(addr, old, new, flags, to) } {
        Ok(at) => at.cast_signed(),
        Err(errno) => -(errno as i64),
    };
    let page = crate::page_size();
    let lens = old.checked_next_multiple_of(page).zip(new.checked_next_multiple_of(page));
    let (Some((old_len, new_len)), Some(file)) = (lens, SharedFile::outside()) else {
        return raw();
    };
    let Some(end) = addr.checked_add(old_len.max(page)).filter(|_| addr.is_multiple_of(page))
    else {
        return raw();
    };
    if !file.maps_any(addr, end) {
        return raw();
    }
    if old_len == 0 {
        // A second mapping of the same pages, which private memory does not allow.
        return -(Errno::EINVAL as i64);
    }
    file.each_own(addr, end, |vma| file.mark(&file.table(), vma.offset));
    if new_len > old_len {
        file.make_room(addr, old_len, new_len);
    }
    let got = raw();
    if got >= 0 && flags & libc::MREMAP_DONTUNMAP != 0 {
        file.each_own(addr, end, |vma| {
            // SAFETY: the program has moved these pages away, and expects zeroes in their place.
            let _ = unsafe { sys::map_zeroes(vma.start, vma.len(), vma.prot()) };
        });
    }
    got
}

/// Writes to each page of writable memory without changing a byte.
fn touch(start: u64, len: u64) {
    for at in (start..start + len).step_by(crate::page_size() as usize) {
        // SAFETY: a byte that the program may write; writes of other threads stay.
        unsafe { AtomicU8::from_ptr(at as *mut u8) }.fetch_or(0, Ordering::Relaxed);
    }
}

impl SharedFile {
    /// Makes sure that a growing mapping shows zeroes behind its end. Frees the next pages of the
    /// file, or, if these pages must stay, makes the mapping private first.
    fn make_room(&'static self, addr: u64, old: u64, new: u64) {
        let fits = |vma: &Vma| vma.file == self.id && vma.start <= addr && addr + old <= vma.end;
        let first = self.maps.first(addr, addr + old).filter(fits);
        // The kernel handles memory outside of the program's blocks alone.
        let Some(vma) = first.filter(|vma| vma.offset >= BLOCKS_FROM) else { return };
        let at = vma.offset + (addr - vma.start);
        let (from, until) = (at + old, at + new);
        let table = self.table();
        let block = table.within(at).filter(|block| until <= block.offset + block.range);
        let is_held = |block: &Block| block.holds > 0 && from < block.offset + block.len;
        let is_free = vma.shares(self.id)
            && block.is_some_and(|block| !is_held(&block))
            && !self.shows(from, until, |start| table.is_alias(start));
        if !(is_free && sys::punch(self.raw_fd(), from, until - from).is_ok()) {
            self.make_private(&Vma { start: addr, end: addr + old, offset: at, ..vma });
        }
    }

    /// Whether the program maps a part of `[from, until)` of the file.
    fn shows(&self, from: u64, until: u64, is_alias: impl Fn(u64) -> bool) -> bool {
        let mut any = false;
        let looked = self.maps.files(|vma| {
            any |= vma.file == self.id && vma.shows(from, until) && !is_alias(vma.start);
        });
        any || looked.is_err()
    }

    /// Turns a mapping of the file into private memory independent of the file, without losing a
    /// write of another thread. A private mapping of the file alone would not do: it shows the
    /// file's page until the first write, and a child would lose pages that this process frees.
    pub(super) fn make_own(&self, vma: &Vma) {
        if vma.flags & WRITE == 0 {
            // No thread writes there.
            return self.make_private(vma);
        }
        let (fd, len) = (self.raw_fd(), vma.len());
        let (at, from) = (At::Over(vma.start), Some((fd, vma.offset)));
        // SAFETY: the same bytes at the same address. From here on no other process's writes are
        // seen there.
        let mapped = unsafe { sys::map(at, len, vma.prot(), libc::MAP_PRIVATE, from) };
        if mapped.is_err() {
            return;
        }
        // A hole reads as zeroes with and without the file.
        each_data(fd, vma.offset, vma.offset + len, |from, until| {
            let (start, len) = (vma.start + (from - vma.offset), until - from);
            // SAFETY: allocates pages without changing any.
            if unsafe { sys::advise(start, len, POPULATE_WRITE) }.is_err() {
                touch(start, len);
            }
            true
        });
    }

    /// Replaces a mapping of the file by private memory with the same bytes, in one step.
    fn make_private(&self, vma: &Vma) {
        let len = vma.len();
        // SAFETY: new memory. It replaces the program's mapping once it has the same bytes, or is
        // unmapped again.
        unsafe {
            let Ok(new) = sys::map(At::Anywhere, len, RW, libc::MAP_PRIVATE, None) else { return };
            let filled = if vma.shares(self.id) {
                fill(self.raw_fd(), new, vma.offset, len)
            } else {
                crate::kernel::copy(CopyDirection::Out, vma.start, new, len).is_ok()
            };
            let moves = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let done = filled
                && sys::protect(new, len, vma.prot()).is_ok()
                && sys::remap(new, len, len, moves, vma.start).is_ok();
            if !done {
                let _ = sys::unmap(new, len);
            }
        }
    }
}
