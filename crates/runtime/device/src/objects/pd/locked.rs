//! Pages locked by a registration, where the device stands for a NIC.
use super::{Backing, Pd};
use crate::error::Error;
use crate::nic::{Has, Locked, pages_of};
use adverb_engine::Access;
use adverb_engine::keys::{Region, RegionKind};

impl Pd {
    /// Counts the pages that a NIC would lock, if the device stands for a NIC.
    pub(super) fn lock_pages(
        &self,
        region: &Region,
        backing: &Backing,
    ) -> Result<Option<Locked>, Error> {
        if self.context.nic().is_none() {
            return Ok(None);
        }
        if region.access.contains(Access::ON_DEMAND) {
            self.context.needs(Has::ODP)?;
            return Ok(None);
        }
        let none = matches!(region.kind, RegionKind::Null | RegionKind::Paged);
        let pages = if none || matches!(backing, Backing::Dm(_)) {
            0
        } else {
            pages_of(region.addr, region.len)
        };
        Locked::pages(pages).map(Some)
    }
}
