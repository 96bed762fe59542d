//! Protection domains and their objects: regions, windows, device memory; XRC domains.
use crate::error::Error;
use crate::faults::Call;
use crate::mapping::Mapping;
use crate::nic::{Has, Locked};
use crate::node::carriers::ring;
use crate::node::{ListPlace, Listed, random_u32};
use crate::objects::context::Context;
use crate::ranks;
use crate::uses::Uses;
use adverb_engine::keys::{MwType, Region, RegionKind};
use adverb_engine::memory::RangeKind;
use adverb_engine::{Access, Cause, Key, KeyTable, PdId, Sge};
use adverb_memory::{MemoryCheckError, check_memory};
use adverb_nldev::Object;
use adverb_sync::Ranked;
use nix::errno::Errno;
use std::sync::Arc;

mod dm;
mod mw;
mod placement;
mod xrcd;

pub use dm::Dm;
pub use mw::Mw;
pub(crate) use placement::Backing;
use placement::Placement;
pub use xrcd::Xrcd;

/// A protection domain.
#[derive(Debug)]
pub struct Pd {
    context: Arc<Context>,
    id: PdId,
    pub(crate) uses: Uses,
    place: ListPlace,
}

impl Pd {
    /// Allocates a protection domain.
    ///
    /// # Errors
    /// EIO in a child of `fork` if the context belongs to the parent.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>, Error> {
        context.fault_call(Call::AllocPd)?;
        let id = context.node().registry.new_pd();
        let pd = Arc::new(Pd {
            context: context.clone(),
            id,
            uses: Uses::new("the protection domain"),
            place: context.place(),
        });
        pd.place.fill(&pd);
        Ok(pd)
    }
    /// The context.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }
    /// The domain's number in the key table.
    #[must_use]
    pub fn id(&self) -> PdId {
        self.id
    }
    /// Adds a use by a face (parent domains).
    pub fn add_user(&self) {
        self.uses.add();
    }
    /// Undoes [`Pd::add_user`].
    pub fn remove_user(&self) {
        self.uses.remove();
    }
    /// Frees the domain. Refused while the domain contains objects.
    ///
    /// # Errors
    /// EBUSY.
    pub fn dealloc(&self) -> Result<(), Error> {
        if self.context.node().is_stale() {
            return Ok(());
        }
        self.uses.check_unused()
    }

    /// Registers `len` bytes at `addr`. Keys see the bytes at `iova`.
    ///
    /// # Errors
    /// EINVAL (rights that contradict each other, a range that wraps), EFAULT (not mapped with the
    /// requested access), ENOMEM.
    ///
    /// # Safety
    /// The bytes stay mapped with the requested access until [`Mr::dereg`]. The device and peers
    /// may read them, and with the respective rights write them, at any time until then.
    #[allow(unsafe_code, reason = "the caller vouches for the memory; nothing unsafe is done here")]
    pub unsafe fn reg_mr(
        self: &Arc<Self>,
        addr: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Mr>, Error> {
        let region = self.user_region(addr, len, iova, access)?;
        self.register(region, Backing::Program)
    }

    /// Registers `len` bytes from `offset` of a mapping. Keys see the bytes at `iova`. The region
    /// keeps the mapping alive.
    ///
    /// # Errors
    /// As [`Pd::reg_mr`]; EINVAL if the bytes leave the mapping.
    pub fn reg_mapping(
        self: &Arc<Self>,
        mapping: &Mapping,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Mr>, Error> {
        let addr = mapping.addr().wrapping_add(offset);
        if !mapping.contains(addr, len) {
            let rule = format!("the memory has {} bytes", mapping.len());
            return Err(Error::invalid(format!("{len} bytes at offset {offset}"), rule));
        }
        let mut region = if mapping.is_dma_buf() {
            Region { pd: self.id, access, iova, len, addr, kind: RegionKind::Mapped }
        } else {
            self.user_region(addr, len, iova, access)?
        };
        if mapping.kind() == RangeKind::Mapped && !access.contains(Access::ON_DEMAND) {
            region.kind = RegionKind::Mapped;
        }
        self.register(region, Backing::Mapping(mapping.clone()))
    }

    /// A region without memory: reads give zeros, writes vanish. The region does not keep the
    /// domain busy, as on a NIC: the domain may be freed first.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn alloc_null_mr(self: &Arc<Self>) -> Result<Arc<Mr>, Error> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        self.register(
            Region { pd: self.id, access, iova: 0, len: u64::MAX, addr: 0, kind: RegionKind::Null },
            Backing::Program,
        )
    }

    /// Registers a range of device memory. Keys count the bytes from zero.
    ///
    /// # Errors
    /// EINVAL if the range leaves the memory or the rights are not zero-based.
    pub fn reg_dm_mr(
        self: &Arc<Self>,
        dm: &Arc<Dm>,
        offset: u64,
        len: u64,
        access: Access,
    ) -> Result<Arc<Mr>, Error> {
        if !access.contains(Access::ZERO_BASED) {
            let rule = "device memory is registered with IBV_ACCESS_ZERO_BASED";
            return Err(Error::invalid("access", rule));
        }
        self.reg_dm(dm, offset, len, 0, access)
    }

    pub(crate) fn reg_dm(
        self: &Arc<Self>,
        dm: &Arc<Dm>,
        offset: u64,
        len: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Mr>, Error> {
        if offset.checked_add(len).is_none_or(|end| end > dm.pages.len() as u64) {
            return Err(dm.outside(offset, len));
        }
        let addr = dm.pages.addr() + offset;
        let region = Region { pd: self.id, access, iova, len, addr, kind: RegionKind::Mapped };
        self.register(region, Backing::Dm(dm.clone()))
    }

    fn user_region(&self, addr: u64, len: u64, iova: u64, access: Access) -> Result<Region, Error> {
        let implicit = access.contains(Access::ON_DEMAND)
            && addr == 0
            && (len == u64::MAX || len == usize::MAX as u64);
        if !implicit && addr.checked_add(len).is_none() {
            let what = format!("{len} bytes at {addr:#x}");
            return Err(Error::invalid(what, "the range wraps around"));
        }
        let zero_based = access.contains(Access::ZERO_BASED);
        if !access.contains(Access::ON_DEMAND) {
            check_memory(addr, len, access.contains(Access::LOCAL_WRITE)).map_err(|e| {
                let errno = match e {
                    MemoryCheckError::NotMapped => Errno::EFAULT,
                    MemoryCheckError::OutOfMemory => Errno::ENOMEM,
                };
                Error::new(errno, format!("{len} bytes at {addr:#x}: {e}"))
            })?;
        }
        let iova = if zero_based { 0 } else { iova };
        Ok(Region { pd: self.id, access, iova, len, addr, kind: RegionKind::OnDemand })
    }

    pub(crate) fn register(
        self: &Arc<Self>,
        region: Region,
        backing: Backing,
    ) -> Result<Arc<Mr>, Error> {
        self.context.fault_call(Call::RegMr)?;
        let node = self.context.node();
        let locked = self.lock_pages(&region, &backing)?;
        let placement = Placement::of(node, region, &backing);
        let key = node.keys.write().register(placement.region, random_u32())?;
        if let Some(host) = &node.host {
            host.publish_key(key, &placement.region, placement.place);
        }
        if keeps_domain(&region) {
            self.uses.add();
        }
        if let Backing::Dm(dm) = &backing {
            dm.uses.add();
        }
        let inner = MrInner { pd: self.clone(), region, placement, locked, ended: false };
        let mr =
            Arc::new(Mr { key, inner: Ranked::new(inner), backing, place: self.context.place() });
        mr.place.fill(&mr);
        Ok(mr)
    }

    /// Faults in the pages of on-demand regions (`ibv_advise_mr`), for writing if `write`. Without
    /// `fault` only the entries are checked. Without `wait` the call is a hint, as on rxe: only a
    /// key that the call may not use is an error. The pages of other regions need no prefetch.
    ///
    /// # Errors
    /// As mlx5: ENOENT (no such key), EPERM (another domain's key, or not writable), EINVAL (a
    /// window), EFAULT (out of bounds, or not mapped). ENOENT also with `wait`, or as a NIC, for a
    /// region which is not on demand. EOPNOTSUPP as a NIC without on-demand paging.
    pub fn prefetch(
        &self,
        sges: &[Sge],
        write: bool,
        fault: bool,
        wait: bool,
    ) -> Result<(), Error> {
        self.context.node().check_alive()?;
        self.context.needs(Has::ODP)?;
        let needed = if write { Access::LOCAL_WRITE } else { Access::empty() };
        let check = |sge: &Sge| {
            let keys = self.context.node().keys.read();
            let range = match keys.check_local(self.id, sge.lkey, needed, sge.addr, sge.length) {
                Ok(range) => range,
                Err(Cause::OutOfBounds { .. }) if !wait => return Ok(None),
                Err(c) => {
                    let errno = match c {
                        Cause::UnknownKey { .. } => Errno::ENOENT,
                        Cause::WrongPd { .. } | Cause::AccessDenied { .. } => Errno::EPERM,
                        Cause::OutOfBounds { .. } => Errno::EFAULT,
                        _ => Errno::EINVAL,
                    };
                    return Err(Error::new(errno, c.to_string()));
                }
            };
            let region = keys.region(sge.lkey);
            let on_demand = region.is_some_and(|r| r.access.contains(Access::ON_DEMAND));
            if !on_demand && (wait || self.context.nic().is_some()) {
                let text = format!(
                    "the region with lkey {:#x} is not on demand (IBV_ACCESS_ON_DEMAND)",
                    sge.lkey
                );
                return Err(Error::new(Errno::ENOENT, text));
            }
            Ok((on_demand && fault && range.kind == RangeKind::OnDemand).then_some(range))
        };
        let ranges = sges.iter().map(check).collect::<Result<Vec<_>, Error>>()?;
        for range in ranges.iter().flatten() {
            if let Err(e) = check_memory(range.addr, range.len.into(), write)
                && wait
            {
                let text = format!("{} bytes at {:#x}: {e}", range.len, range.addr);
                return Err(Error::new(Errno::EFAULT, text));
            }
        }
        Ok(())
    }

    /// Allocates a memory window.
    ///
    /// # Errors
    /// ENOMEM.
    pub fn alloc_mw(self: &Arc<Self>, ty: MwType) -> Result<Arc<Mw>, Error> {
        self.context.node().check_alive()?;
        self.context.needs(Has::WINDOWS)?;
        self.context.fault_call(Call::AllocMw)?;
        let key = self.context.node().keys.write().alloc_mw(self.id, ty, random_u32())?;
        self.uses.add();
        Ok(Arc::new(Mw { pd: self.clone(), ty, key: Ranked::new(key) }))
    }
}

/// Does the domain wait for such a region?
fn keeps_domain(region: &Region) -> bool {
    region.kind != RegionKind::Null
}

/// A memory region.
#[derive(Debug)]
pub struct Mr {
    key: Key,
    inner: Ranked<MrInner, ranks::MemoryRegion>,
    backing: Backing,
    place: ListPlace,
}

#[derive(Debug)]
struct MrInner {
    pd: Arc<Pd>,
    /// The region as described by its consumer.
    region: Region,
    placement: Placement,
    locked: Option<Locked>,
    ended: bool,
}

impl Mr {
    /// The region's key, local and remote.
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }
    /// The range and rights of the region.
    #[must_use]
    pub fn region(&self) -> Region {
        self.inner.lock().region
    }
    /// The region's protection domain.
    #[must_use]
    pub fn pd(&self) -> Arc<Pd> {
        self.inner.lock().pd.clone()
    }

    /// Changes the range, the protection domain or the rights, each if given. The key stays.
    ///
    /// # Errors
    /// As [`Pd::reg_mr`]. The region is unchanged then.
    ///
    /// # Safety
    /// As [`Pd::reg_mr`] for the new range.
    #[allow(unsafe_code, reason = "the caller vouches for the memory; nothing unsafe is done here")]
    pub unsafe fn rereg(
        &self,
        range: Option<(u64, u64)>,
        pd: Option<&Arc<Pd>>,
        access: Option<Access>,
    ) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        let old = inner.region;
        let new_pd = pd.unwrap_or(&inner.pd).clone();
        let (addr, len) = range.unwrap_or((old.addr, old.len));
        let iova = if range.is_some() { addr } else { old.iova };
        let region = new_pd.user_region(addr, len, iova, access.unwrap_or(old.access))?;
        let node = new_pd.context.node();
        new_pd.context.fault_call(Call::ReregMr)?;
        let locked = new_pd.lock_pages(&region, &self.backing)?;
        let placement = Placement::of(node, region, &self.backing);
        ring::withdraw(node, self.key, &inner.placement.region, |keys| {
            keys.reregister(self.key, placement.region)
        })?;
        if let Some(host) = &node.host {
            host.publish_key(self.key, &placement.region, placement.place);
        }
        inner.region = region;
        inner.placement = placement;
        inner.locked = locked;
        if !Arc::ptr_eq(&inner.pd, &new_pd) {
            inner.pd.uses.remove();
            new_pd.uses.add();
            inner.pd = new_pd;
        }
        Ok(())
    }

    /// Deregisters the region: waits for copies under way; afterwards no access can begin. Refused
    /// while a window is bound to the region.
    ///
    /// # Errors
    /// EBUSY; EINVAL if the region was deregistered already.
    pub fn dereg(&self) -> Result<(), Error> {
        self.end(|_| ())
    }

    /// As [`Mr::dereg`], but unbinds the region's windows.
    ///
    /// # Errors
    /// EINVAL if the region was deregistered already.
    pub fn revoke(&self) -> Result<(), Error> {
        self.end(|keys| keys.unbind_windows(self.key))
    }

    fn end(&self, prepare: impl FnOnce(&mut KeyTable)) -> Result<(), Error> {
        let mut inner = self.inner.lock();
        let node = inner.pd.context.node();
        if node.is_stale() {
            return Ok(());
        }
        ring::withdraw(node, self.key, &inner.placement.region, |keys| {
            prepare(keys);
            keys.deregister(self.key).map(drop)
        })?;
        inner.placement.listed = None;
        inner.placement.hold = None;
        inner.locked = None;
        if keeps_domain(&inner.region) {
            inner.pd.uses.remove();
        }
        inner.ended = true;
        if let Backing::Dm(dm) = &self.backing {
            dm.uses.remove();
        }
        Ok(())
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        // The library's own memory must not go while the key opens it. Memory of the program is the
        // program's responsibility.
        if let Backing::Mapping(mapping) = &self.backing
            && !self.inner.get_mut().ended
        {
            let kept = mapping.clone();
            if self.dereg().is_err() {
                std::mem::forget(kept);
            }
        }
    }
}

impl Listed for Pd {
    fn describe(&self) -> Option<(String, Object)> {
        let (number, context) = (self.id.0, self.context.place.serial());
        let object = Object::Pd { number, context, users: self.uses.count() };
        Some((self.context.device().name().to_owned(), object))
    }
}

impl Listed for Mr {
    /// A region that is ending, or that changes at this moment, is left out. A wait for the end of
    /// a region could be long.
    fn describe(&self) -> Option<(String, Object)> {
        let inner = self.inner.try_lock().filter(|inner| !inner.ended)?;
        let (pd, len) = (&inner.pd, inner.region.len);
        let object = Object::Mr { number: self.place.serial(), pd: pd.id.0, len };
        Some((pd.context.device().name().to_owned(), object))
    }
}
