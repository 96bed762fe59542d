//! Fast-registered regions: a key allocated once, with pages given by a work request (IBTA 10.6.3,
//! NDKPI's `NdkFastRegister`).
//!
//! Such a key is *free* or *registered*. A request registers the free key over a list of pages of
//! [`PAGE`] bytes, under a new tag. The pages need not lie side by side. An invalidate, local or by
//! the peer, frees the key. Page lists of queued requests wait here under a number, so that a work
//! queue element stays small.
use super::access::inside;
use super::{Object, Region, RegionKind, checked_region};
use crate::cause::Cause;
use crate::memory::{Memory, MemoryFault, Range, RangeKind};
use crate::types::{Access, Key, PdId};
use crate::{AtomicOp, KeyTable};
use alloc::boxed::Box;
use alloc::collections::VecDeque;

#[cfg(test)]
mod tests;

/// Bytes of a page of a fast-registered region.
pub const PAGE: u64 = 4096;

/// The number of a page list which waits for its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageListId(u32);

/// A fast registration, as described by a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastReg {
    /// The key, found by its index.
    pub mr: Key,
    /// The new key: the same index, any tag.
    pub new_key: Key,
    /// Address of the first byte for users of the key.
    pub iova: u64,
    /// Bytes.
    pub len: u64,
    /// Rights.
    pub access: Access,
    /// First byte within the first page.
    pub first: u32,
    /// The pages, from [`KeyTable::stage_pages`].
    pub pages: PageListId,
}

/// A key for fast registrations.
#[derive(Debug)]
pub(super) struct Fast {
    pub(super) pd: PdId,
    max_pages: u32,
    /// The open region; `None` while the key is free.
    pub(super) region: Option<Region>,
    /// Number of windows bound to the region.
    pub(super) windows: u32,
    /// Number of the open page list, and the host addresses of its pages.
    pages: (Option<PageListId>, Box<[u64]>),
    /// Page lists of queued requests, oldest first.
    staged: VecDeque<(PageListId, Box<[u64]>)>,
    next_list: u32,
}

impl KeyTable {
    /// Allocates a free key for fast registrations of up to `max_pages` pages.
    ///
    /// # Errors
    /// `QueueFull` when the table is full.
    pub fn alloc_fast(&mut self, pd: PdId, max_pages: u32, random: u32) -> Result<Key, Cause> {
        let fast = Fast {
            pd,
            max_pages,
            region: None,
            windows: 0,
            pages: (None, Box::default()),
            staged: VecDeque::new(),
            next_list: 0,
        };
        self.insert(Object::Fast(Box::new(fast)), random)
    }

    /// Keeps the pages of a request until the request is performed. Lists of requests that were
    /// never performed (flushed, or never posted) are freed with the next performed request, or
    /// with the key.
    ///
    /// # Errors
    /// `UnknownKey`; `BadArgument` for no pages, more pages than the key allows, or a page without
    /// page alignment.
    pub fn stage_pages(&mut self, mr: Key, pages: &[u64]) -> Result<PageListId, Cause> {
        let fast = self.fast_mut(mr)?;
        let bad = |rule| Err(Cause::BadArgument { what: "pages", rule });
        if pages.is_empty() {
            return bad("a fast registration names at least one page");
        }
        if pages.len() > fast.max_pages as usize {
            return bad("more pages than the region was made for");
        }
        if pages.iter().any(|p| !p.is_multiple_of(PAGE)) {
            return bad("a page starts at a multiple of its size");
        }
        let id = PageListId(fast.next_list);
        fast.next_list = fast.next_list.wrapping_add(1);
        fast.staged.push_back((id, pages.into()));
        Ok(id)
    }

    /// Forgets the pages of a request that was not posted.
    pub fn unstage_pages(&mut self, mr: Key, list: PageListId) {
        if let Ok(fast) = self.fast_mut(mr) {
            fast.staged.retain(|(id, _)| *id != list);
        }
    }

    /// Is this page list open or waiting? As long as it is, the host keeps the memory.
    #[must_use]
    pub fn uses_pages(&self, mr: Key, list: PageListId) -> bool {
        match self.slots.get(mr) {
            Some((_, Object::Fast(fast))) => {
                fast.pages.0 == Some(list) || fast.staged.iter().any(|(id, _)| *id == list)
            }
            _ => false,
        }
    }

    /// Frees the key and its region. The tag of `key` is not checked.
    ///
    /// # Errors
    /// `UnknownKey`; `InUse` while a window is bound to the region.
    pub fn dealloc_fast(&mut self, key: Key) -> Result<(), Cause> {
        if self.fast_mut(key)?.windows > 0 {
            return Err(Cause::InUse { key });
        }
        self.slots.remove(key);
        Ok(())
    }

    /// The pages behind a range of kind [`RangeKind::Paged`].
    fn pages(&self, index: u32) -> &[u64] {
        match self.slots.get(index << 8) {
            Some((_, Object::Fast(fast))) => &fast.pages.1,
            _ => &[],
        }
    }

    fn fast_mut(&mut self, key: Key) -> Result<&mut Fast, Cause> {
        match self.slots.get_mut(key) {
            Some((_, Object::Fast(fast))) => Ok(fast),
            _ => Err(Cause::UnknownKey { key }),
        }
    }

    /// The region which a valid request would make.
    pub(super) fn plan_fast(&self, reg: &FastReg, pd: PdId) -> Result<Region, Cause> {
        let Some((_, Object::Fast(fast))) = self.slots.get(reg.mr) else {
            return Err(Cause::UnknownKey { key: reg.mr });
        };
        let bad = |what, rule| Err(Cause::BadArgument { what, rule });
        if fast.pd != pd {
            return Err(Cause::WrongPd { key: reg.mr });
        }
        if reg.new_key >> 8 != reg.mr >> 8 {
            return bad("key", "a fast registration changes the low 8 bits of the key only");
        }
        if fast.region.is_some() {
            // Registers from the free state only: an invalidate comes first.
            return Err(Cause::InUse { key: reg.mr });
        }
        let Some((_, pages)) = fast.staged.iter().find(|(id, _)| *id == reg.pages) else {
            return bad("pages", "the page list is not there");
        };
        let first = u64::from(reg.first);
        if first >= PAGE || inside((0, pages.len() as u64 * PAGE), first, reg.len).is_none() {
            return bad("length", "the region leaves its pages");
        }
        if reg.iova % PAGE != first {
            return bad("iova", "it has the offset of the first byte within its page");
        }
        let FastReg { access, iova, len, .. } = *reg;
        checked_region(Region { pd, access, iova, len, addr: first, kind: RegionKind::Paged })
    }

    pub(super) fn apply_fast(&mut self, reg: &FastReg, pd: PdId) -> Result<(), Cause> {
        let region = self.plan_fast(reg, pd)?;
        let Some((current, Object::Fast(fast))) = self.slots.get_mut(reg.mr) else {
            return Err(Cause::UnknownKey { key: reg.mr });
        };
        while let Some((id, pages)) = fast.staged.pop_front() {
            if id == reg.pages {
                fast.pages = (Some(id), pages);
                break;
            }
        }
        *current = reg.new_key;
        fast.region = Some(region);
        Ok(())
    }
}

impl Fast {
    /// May an invalidate of `key` free this key?
    pub(super) fn check_invalidate(&self, key: Key, pd: PdId) -> Result<(), Cause> {
        if self.pd != pd {
            return Err(Cause::WrongPd { key });
        }
        if self.region.is_none() {
            return Err(Cause::NotRegistered { key });
        }
        if self.windows > 0 {
            return Err(Cause::InUse { key });
        }
        Ok(())
    }

    pub(super) fn invalidate(&mut self) {
        self.region = None;
        self.pages = (None, Box::default());
    }
}

/// Memory that also knows the pages of fast-registered regions. The host wraps its memory together
/// with the key table and holds the lock of the table.
#[derive(Clone, Copy, Debug)]
pub struct PagedMemory<'a, M> {
    /// The key table that checked the ranges.
    pub keys: &'a KeyTable,
    /// The memory below the pages.
    pub memory: M,
}

impl<M: Memory> PagedMemory<'_, M> {
    /// Calls `copy` for each part of a range within one page, with the part's position in the
    /// range.
    fn pieces(
        &self,
        index: u32,
        range: Range,
        mut copy: impl FnMut(Range, core::ops::Range<usize>) -> Result<(), MemoryFault>,
    ) -> Result<(), MemoryFault> {
        let pages = self.keys.pages(index);
        let (mut at, mut done, len) = (range.addr, 0usize, range.len as usize);
        while done < len {
            let page = pages.get((at / PAGE) as usize).ok_or(MemoryFault { addr: at })?;
            let take = ((PAGE - at % PAGE) as usize).min(len - done);
            let piece =
                Range { addr: page + at % PAGE, len: take as u32, kind: self.memory.page_kind() };
            copy(piece, done..done + take)?;
            at += take as u64;
            done += take;
        }
        Ok(())
    }
}

impl<M: Memory> Memory for PagedMemory<'_, M> {
    #[inline]
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        match from.kind {
            RangeKind::Paged(index) => {
                self.pieces(index, from, |piece, at| self.memory.read(piece, &mut to[at]))
            }
            _ => self.memory.read(from, to),
        }
    }

    #[inline]
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        match to.kind {
            RangeKind::Paged(index) => {
                self.pieces(index, to, |piece, at| self.memory.write(piece, &from[at]))
            }
            _ => self.memory.write(to, from),
        }
    }

    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        let RangeKind::Paged(index) = at.kind else { return self.memory.atomic(at, op) };
        // Eight aligned bytes lie in one page.
        let mut old = 0;
        self.pieces(index, at, |piece, _| {
            old = self.memory.atomic(piece, op)?;
            Ok(())
        })?;
        Ok(old)
    }
}
