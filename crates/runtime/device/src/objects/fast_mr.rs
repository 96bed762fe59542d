//! Regions that a work request registers over a list of pages.
use crate::error::Error;
use crate::mapping::Mapping;
use crate::node::random_u32;
use crate::objects::pd::Pd;
use crate::ranks;
use adverb_engine::keys::{PAGE, PageListId};
use adverb_engine::{Access, FastReg, Key};
use adverb_sync::Ranked;
use std::sync::Arc;

/// Most pages of a fast-registered region.
pub const MAX_FAST_PAGES: u32 = 1 << 16;

/// A page of a fast registration. The bytes of the page inside the region must lie in the mapping.
/// The page itself may begin before the mapping or end after it.
#[derive(Clone, Debug)]
pub struct Page {
    /// The memory.
    pub mapping: Mapping,
    /// Address of the page, a multiple of 4096.
    pub addr: u64,
}

/// A key for fast registrations: a work request
/// ([`SendOp::FastReg`](adverb_engine::SendOp::FastReg)) registers pages, and an invalidate removes
/// them.
#[derive(Debug)]
pub struct FastMr {
    pd: Arc<Pd>,
    inner: Ranked<Inner, ranks::FastRegion>,
}

#[derive(Debug)]
struct Inner {
    /// The key given by the last posted request.
    key: Key,
    /// Memory of the page lists in the key table.
    kept: Vec<(PageListId, Vec<Mapping>)>,
    ended: bool,
}

impl Pd {
    /// Allocates a key for fast registrations of up to `max_pages` pages of 4096 bytes.
    ///
    /// # Errors
    /// EINVAL for a size out of range, ENOMEM when the key table is full.
    pub fn alloc_fast_mr(self: &Arc<Self>, max_pages: u32) -> Result<Arc<FastMr>, Error> {
        Error::check_size("max_pages", max_pages, MAX_FAST_PAGES)?;
        let node = self.context().node();
        self.context().check_usable()?;
        let key = node.keys.write().alloc_fast(self.id(), max_pages, random_u32())?;
        self.uses.add();
        let inner = Inner { key, kept: Vec::new(), ended: false };
        Ok(Arc::new(FastMr { pd: self.clone(), inner: Ranked::new(inner) }))
    }
}

impl FastMr {
    /// The region's key, local and remote, as given by the last posted request.
    #[must_use]
    pub fn key(&self) -> Key {
        self.inner.lock().key
    }

    /// The region's protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Makes a request that registers `len` bytes over `pages`, from byte `fbo` of the first page.
    /// Addresses start at `iova`, and the key is new. The caller posts the request and then calls
    /// [`FastMr::posted`], or drops the request with [`FastMr::forget`].
    ///
    /// # Errors
    /// EINVAL: pages without alignment or outside of their memory, too many or too few pages, or an
    /// `iova` with an offset in its page other than `fbo`.
    pub fn prepare(
        &self,
        pages: &[Page],
        fbo: u32,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<FastReg, Error> {
        check_pages(pages, fbo, len)?;
        if iova % PAGE != u64::from(fbo) {
            let rule = format!("its offset within a page is the first byte's, {fbo:#x}");
            return Err(Error::invalid(format!("the base address is {iova:#x}"), rule));
        }
        let node = self.pd.context().node();
        node.check_alive()?;
        let mut inner = self.inner.lock();
        let addrs: Vec<u64> = pages.iter().map(|p| p.addr).collect();
        let mut keys = node.keys.write();
        let list = keys.stage_pages(inner.key, &addrs)?;
        let mr = inner.key;
        inner.kept.retain(|(id, _)| keys.uses_pages(mr, *id));
        inner.kept.push((list, pages.iter().map(|p| p.mapping.clone()).collect()));
        // The tag changes each time, so that the old key opens nothing.
        let new_key = (mr & !0xff) | (mr.wrapping_add(1) & 0xff);
        Ok(FastReg { mr, new_key, iova, len, access, first: fbo, pages: list })
    }

    /// The request was posted. From now on [`FastMr::key`] answers its key.
    pub fn posted(&self, request: &FastReg) {
        self.inner.lock().key = request.new_key;
    }

    /// The request was not posted.
    pub fn forget(&self, request: &FastReg) {
        let mut inner = self.inner.lock();
        self.pd.context().node().keys.write().unstage_pages(request.mr, request.pages);
        inner.kept.retain(|(id, _)| *id != request.pages);
    }

    /// Frees the key, registered or not. Refused while a window is bound to the region.
    ///
    /// # Errors
    /// EBUSY; EINVAL if the key was freed already.
    pub fn dereg(&self) -> Result<(), Error> {
        let node = self.pd.context().node();
        if node.is_stale() {
            return Ok(());
        }
        let mut inner = self.inner.lock();
        if inner.ended {
            return Err(Error::invalid("mr", "the region was deregistered already"));
        }
        node.keys.write().dealloc_fast(inner.key)?;
        inner.ended = true;
        inner.kept.clear();
        self.pd.uses.remove();
        Ok(())
    }
}

impl Drop for FastMr {
    fn drop(&mut self) {
        // The library's own memory must not go while a key opens it.
        if !self.inner.get_mut().ended && self.dereg().is_err() {
            std::mem::forget(std::mem::take(&mut self.inner.get_mut().kept));
        }
    }
}

/// Checks that each page is aligned, and that its bytes inside the region exist.
fn check_pages(pages: &[Page], fbo: u32, len: u64) -> Result<(), Error> {
    let first = u64::from(fbo);
    let end =
        first.checked_add(len).filter(|end| first < PAGE && *end <= pages.len() as u64 * PAGE);
    let Some(end) = end else {
        let what = format!("{len} bytes from byte {fbo:#x} of the first page");
        let rule = format!("{} pages of {PAGE} bytes do not hold them", pages.len());
        return Err(Error::invalid(what, rule));
    };
    for (i, page) in pages.iter().enumerate() {
        if !page.addr.is_multiple_of(PAGE) {
            let what = format!("page {i} is at {:#x}", page.addr);
            return Err(Error::invalid(what, format!("pages start at a multiple of {PAGE}")));
        }
        let base = i as u64 * PAGE;
        let (from, to) = (first.max(base) - base, end.clamp(base, base + PAGE) - base);
        if from < to && !page.mapping.contains(page.addr + from, to - from) {
            let what = format!("page {i} at {:#x}", page.addr);
            return Err(Error::invalid(what, "the region leaves the memory the page is of"));
        }
    }
    Ok(())
}
