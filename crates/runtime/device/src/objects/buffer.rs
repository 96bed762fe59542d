//! Registered memory without a promise of the caller: pages of the library, registered while they
//! live.
use crate::error::Error;
use crate::mapping::Mapping;
use crate::objects::pd::{Backing, Mr, Pd};
use adverb_engine::keys::{Region, RegionKind};
use adverb_engine::{Access, Key, Sge};
use adverb_memory::Pages;
use std::sync::Arc;

/// Registered memory of the library, initially zero. Bytes are copied in and out, never borrowed,
/// because the device and peers may write them at any time. The drop deregisters and frees the
/// memory.
#[derive(Debug)]
pub struct Buffer {
    pages: Arc<Pages>,
    mr: Arc<Mr>,
}

impl Buffer {
    /// Allocates `len` bytes and registers them in `pd`. Keys see the bytes at [`Buffer::addr`] (at
    /// 0 with [`Access::ZERO_BASED`]).
    ///
    /// # Errors
    /// ENOMEM when there is no memory, EINVAL for rights that contradict each other.
    pub fn new(pd: &Arc<Pd>, len: usize, access: Access) -> Result<Self, Error> {
        let pages = Arc::new(crate::memory::pages(len)?);
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
    /// Is the buffer empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }
    /// The buffer's key, local and remote.
    #[must_use]
    pub fn key(&self) -> Key {
        self.mr.key()
    }
    /// The buffer's region.
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
        // After the deregistration no copy is under way, so the pages may go.
        if let Err(e) = self.mr.dereg() {
            // A window is still bound to the region. Peers can reach the pages, so the pages stay.
            log::warn!("{} bytes stay registered: {e}", self.len());
            std::mem::forget(self.pages.clone());
        }
    }
}

#[cfg(test)]
mod tests;
