//! Memory that a queue pair may use without any promise from the caller: pages of our own,
//! registered while they live.
use crate::error::Error;
use crate::mapping::Mapping;
use crate::objects::pd::{Backing, Mr, Pd};
use adverb_engine::keys::{Region, RegionKind};
use adverb_engine::{Access, Key, Sge};
use adverb_memory::Pages;
use nix::errno::Errno;
use std::sync::Arc;

/// Registered memory of our own, zeroed at first. Bytes are copied in and out, never borrowed: the
/// device and peers may write them at any time. Dropped, it is deregistered and given back.
#[derive(Debug)]
pub struct Buffer {
    pages: Arc<Pages>,
    mr: Arc<Mr>,
}

impl Buffer {
    /// Allocates `len` bytes and registers them in `pd`, seen by keys at [`Buffer::addr`] (at 0
    /// with [`Access::ZERO_BASED`]).
    ///
    /// # Errors
    /// ENOMEM when the memory cannot be had, EINVAL for rights that contradict each other.
    pub fn new(pd: &Arc<Pd>, len: usize, access: Access) -> Result<Self, Error> {
        let pages = crate::memory::pages(len).map_err(|e| {
            let why = e.desc();
            Error::new(Errno::ENOMEM, format!("{len} bytes of memory for a buffer cannot be had: {why}"))
        })?;
        let pages = Arc::new(pages);
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { pages.addr() };
        let region = Region {
            pd: pd.id(),
            access,
            iova,
            len: len as u64,
            addr: pages.addr(),
            kind: RegionKind::Mapped,
        };
        let mr = pd.register(region, Backing::Mapping(Mapping::pages(pages.clone())))?;
        Ok(Buffer { pages, mr })
    }
    /// First address, in the key's address space.
    #[must_use]
    #[allow(clippy::misnamed_getters, reason = "the address that keys see")]
    pub fn addr(&self) -> u64 {
        self.mr.region().iova
    }
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }
    /// No bytes?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
    /// Its key, local and remote.
    #[must_use]
    pub fn key(&self) -> Key {
        self.mr.key()
    }
    /// Its region.
    #[must_use]
    pub fn mr(&self) -> &Arc<Mr> {
        &self.mr
    }
    /// A scatter/gather entry of `len` bytes from `offset`.
    #[must_use]
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.addr().wrapping_add(offset as u64),
            length: u32::try_from(len).unwrap_or(u32::MAX),
            lkey: self.key(),
        }
    }
    /// Copies in; `false` if the range leaves the buffer.
    #[must_use]
    pub fn write_at(&self, offset: usize, from: &[u8]) -> bool {
        self.pages.write_at(offset, from)
    }
    /// Copies out; `false` if the range leaves the buffer.
    #[must_use]
    pub fn read_at(&self, offset: usize, to: &mut [u8]) -> bool {
        self.pages.read_at(offset, to)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Once it is deregistered no copy is under way and the pages may go.
        if let Err(e) = self.mr.dereg() {
            // A window is still bound to it: peers can reach the pages, so they stay.
            log::warn!("{} bytes stay registered: {e}", self.len());
            std::mem::forget(self.pages.clone());
        }
    }
}

#[cfg(test)]
mod tests;
