//! The memory behind a region: where it is, how peers reach it, and the pages that a NIC would
//! lock.
use super::{Dm, Pd};
use crate::error::Error;
use crate::host::{Listed, MemoryRoute};
use crate::mapping::Mapping;
use crate::nic::{Has, Locked, pages_of};
use crate::node::Node;
use adverb_engine::Access;
use adverb_engine::keys::{Region, RegionKind};
use adverb_memory::{Hold, SharedFile};
use std::sync::Arc;

/// The memory behind a region.
#[derive(Debug)]
pub(crate) enum Backing {
    /// Memory of the program. The program guarantees that the memory stays.
    Program,
    /// Device memory.
    Dm(Arc<Dm>),
    /// A mapping that stays as long as the region.
    Mapping(Mapping),
}

impl Backing {
    fn is_dma_buf(&self) -> bool {
        matches!(self, Backing::Mapping(mapping) if mapping.is_dma_buf())
    }
    /// File offset of the byte at an address, in the file that peers map. `None` for memory of the
    /// program.
    fn file_offset(&self, addr: u64) -> Option<u64> {
        match self {
            Backing::Program => None,
            Backing::Dm(dm) => Some(dm.pages.offset()? + addr.checked_sub(dm.pages.addr())?),
            Backing::Mapping(mapping) => mapping.file_offset(addr),
        }
    }
}

/// Where the device and peers reach the bytes of a region.
#[derive(Debug)]
pub(super) struct Placement {
    /// The region in the key table: for shared memory with the device's own address.
    pub(super) region: Region,
    /// The place for peers.
    pub(super) place: MemoryRoute,
    pub(super) listed: Option<Listed>,
    pub(super) hold: Option<Hold>,
}

impl Placement {
    /// Finds the placement of a region described by its consumer.
    pub(super) fn of(node: &Node, mut region: Region, backing: &Backing) -> Self {
        let mut hold = None;
        let mut place = MemoryRoute::Process(region.addr);
        let by_kernel =
            region.kind == RegionKind::OnDemand && !region.access.contains(Access::ON_DEMAND);
        if region.access.contains(Access::ON_DEMAND) {
            adverb_memory::all_memory_is_open();
        }
        if matches!(region.kind, RegionKind::Null | RegionKind::Paged)
            || region.len == 0
            || backing.is_dma_buf()
        {
            place = MemoryRoute::Nowhere;
        } else if let Some(offset) = backing.file_offset(region.addr) {
            place = MemoryRoute::File(offset);
        } else if by_kernel && let Ok(file) = SharedFile::of_process() {
            match file.place(region.addr, region.len) {
                Ok(placed) => {
                    (region.addr, region.kind) = (placed.addr, RegionKind::Mapped);
                    place = MemoryRoute::File(placed.offset);
                    hold = Some(placed.hold);
                }
                Err(why) => {
                    log::debug!(
                        "{} bytes at {:#x} are reached by system calls: {why}",
                        region.len,
                        region.addr
                    );
                    node.counters.count_private(why);
                }
            }
        }
        let listed = node.host.as_ref().and_then(|host| host.list(&region, place));
        Placement { region, place, listed, hold }
    }
}

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
