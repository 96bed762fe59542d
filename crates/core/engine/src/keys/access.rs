//! May an access go through a key, and to which bytes? These checks only read the table.
use super::{KeyTable, MwType, Object, Region, RegionKind};
use crate::cause::Cause;
use crate::memory::{Range, RangeKind};
use crate::types::{Access, Key, PdId, Qpn};

/// (first address in the key's own address space, bytes, first address in the host's terms).
type Opened = (u64, u64, u64);

/// Mapped memory opened by a local key of a protection domain.
#[derive(Clone, Copy, Debug)]
pub struct MappedRegion {
    key: Key,
    region: Region,
}

impl MappedRegion {
    /// The key of the region.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Key {
        self.key
    }

    /// As [`KeyTable::check_local`], but answers only the host's address. `None` if a check fails
    /// or `len` is 0.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, key: Key, needed: Access, va: u64, len: u32) -> Option<u64> {
        let MappedRegion { key: own, region } = self;
        let plain = key == *own && len != 0 && region.access.contains(needed);
        let offset = inside((region.iova, region.len), va, u64::from(len)).filter(|_| plain)?;
        // Cannot wrap: addr + size was checked at registration.
        Some(region.addr + offset)
    }
}

impl KeyTable {
    /// Checks a local scatter/gather entry. `needed` is empty for reading, `LOCAL_WRITE` for
    /// writing.
    ///
    /// An entry of length 0 names no memory, and its key is not checked: the mlx5 provider never
    /// gives such entries to the device. The answer is an empty range of kind `Null`.
    ///
    /// # Errors
    /// `UnknownKey`, `OpNotSupported` (a window's key), `WrongPd`, `AccessDenied`, `OutOfBounds`;
    /// in this order.
    #[inline]
    pub fn check_local(
        &self,
        pd: PdId,
        key: Key,
        needed: Access,
        va: u64,
        len: u32,
    ) -> Result<Range, Cause> {
        if len == 0 {
            return Ok(Range { addr: va, len: 0, kind: RangeKind::Null });
        }
        let region = self.local_region(pd, key)?;
        let granted = match region.kind {
            // A null region takes anything from its own side (`ibv_alloc_null_mr(3)`).
            RegionKind::Null => Access::LOCAL_WRITE,
            _ => region.access,
        };
        demand(key, needed, granted)?;
        place(key, key, region.kind, (region.iova, region.len, region.addr), va, len)
    }

    /// The region of a local key, if its kind is `Mapped`. The caller then needs no look-up for
    /// each access while the key stays. `None` for every other key.
    #[must_use]
    pub fn mapped_region(&self, pd: PdId, key: Key) -> Option<MappedRegion> {
        let (current, Object::Region { region, .. }) = self.slots.get(key)? else { return None };
        let plain = current == key && region.pd == pd && region.kind == RegionKind::Mapped;
        plain.then_some(MappedRegion { key, region: *region })
    }

    /// Checks a remote access by the peer of `qpn`. Length 0 is allowed with any key (IBTA
    /// 9.7.4.1.5, C9-88).
    ///
    /// # Errors
    /// `UnknownKey`, `WrongPd`, `WindowNotUsable`, `AccessDenied`, `OutOfBounds`; in this order.
    #[inline]
    pub fn check_remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        key: Key,
        needed: Access,
        va: u64,
        len: u32,
    ) -> Result<Range, Cause> {
        if len == 0 {
            return Ok(Range { addr: va, len: 0, kind: RangeKind::Null });
        }
        let (owner, kind, opened) = self.remote(pd, qpn, key, needed)?;
        place(key, owner, kind, opened, va, len)
    }

    /// Checks a remote access to the whole range of a key (a FLUSH of region selectivity, which
    /// ignores address and length).
    ///
    /// # Errors
    /// Those of [`KeyTable::check_remote`] except the bounds.
    pub fn check_remote_key(
        &self,
        pd: PdId,
        qpn: Qpn,
        key: Key,
        needed: Access,
    ) -> Result<(), Cause> {
        self.remote(pd, qpn, key, needed).map(drop)
    }

    /// The object with exactly this key.
    #[inline]
    pub(super) fn exact(&self, key: Key) -> Result<&Object, Cause> {
        match self.slots.get(key) {
            Some((current, object)) if current == key => Ok(object),
            _ => Err(Cause::UnknownKey { key }),
        }
    }

    #[inline]
    pub(super) fn local_region(&self, pd: PdId, key: Key) -> Result<&Region, Cause> {
        match self.exact(key)? {
            // A window has an R_Key and no L_Key.
            Object::Window(_) => {
                Err(Cause::OpNotSupported { op: "local access", on: "a memory window" })
            }
            Object::Region { region, .. } if region.pd != pd => Err(Cause::WrongPd { key }),
            Object::Region { region, .. } => Ok(region),
            Object::Fast(fast) if fast.pd != pd => Err(Cause::WrongPd { key }),
            Object::Fast(fast) => fast.region.as_ref().ok_or(Cause::NotRegistered { key }),
        }
    }

    /// The range that a remote key opens to `qpn`: its region's key and kind, and (start, length,
    /// host address).
    #[inline]
    fn remote(
        &self,
        pd: PdId,
        qpn: Qpn,
        key: Key,
        needed: Access,
    ) -> Result<(Key, RegionKind, Opened), Cause> {
        match self.exact(key)? {
            Object::Region { .. } | Object::Fast(_) => {
                let region = self.local_region(pd, key)?;
                let granted = match region.kind {
                    // A null region has no R_Key (`ibv_alloc_null_mr(3)`).
                    RegionKind::Null => Access::empty(),
                    _ => region.access,
                };
                demand(key, needed, granted)?;
                Ok((key, region.kind, (region.iova, region.len, region.addr)))
            }
            Object::Window(window) => {
                if window.pd != pd {
                    return Err(Cause::WrongPd { key });
                }
                let binding = match &window.binding {
                    Some(b) if window.ty == MwType::Type1 || b.qpn == qpn => b,
                    _ => return Err(Cause::WindowNotUsable { key }),
                };
                demand(key, needed, binding.access)?;
                Ok((binding.mr, binding.kind, (binding.start, binding.len, binding.addr)))
            }
        }
    }
}

#[inline]
pub(super) fn demand(key: Key, needed: Access, granted: Access) -> Result<(), Cause> {
    if granted.contains(needed) {
        Ok(())
    } else {
        Err(Cause::AccessDenied { key, needed, granted })
    }
}

/// Offset of `va` in the `size` bytes at `start`, if all `len` bytes lie inside. No sum can wrap.
#[inline]
pub(super) fn inside((start, size): (u64, u64), va: u64, len: u64) -> Option<u64> {
    let offset = va.checked_sub(start)?;
    (len <= size && offset <= size - len).then_some(offset)
}

/// Translates a checked access through `key` to memory of the region `owner`.
#[inline]
fn place(
    key: Key,
    owner: Key,
    kind: RegionKind,
    (start, size, addr): Opened,
    va: u64,
    len: u32,
) -> Result<Range, Cause> {
    let kind = match kind {
        RegionKind::Paged => RangeKind::Paged(owner >> 8),
        RegionKind::Mapped => RangeKind::Mapped,
        RegionKind::OnDemand => RangeKind::OnDemand,
        RegionKind::Null => return Ok(Range { addr: va, len, kind: RangeKind::Null }),
    };
    match inside((start, size), va, u64::from(len)) {
        // Cannot wrap: addr + size was checked at registration.
        Some(offset) => Ok(Range { addr: addr + offset, len, kind }),
        None => Err(Cause::OutOfBounds { key, va, len: u64::from(len), start, size }),
    }
}
