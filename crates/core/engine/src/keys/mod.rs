//! The key table: creation, change and removal of memory regions and windows. There are no pointers
//! here. `access` checks accesses through a key.
use crate::cause::Cause;
use crate::types::{Access, Key, PdId, Qpn};
use crate::wr::MwBind;
pub use access::MappedRegion;
use access::{demand, inside};
use alloc::boxed::Box;
use fast::Fast;
pub use fast::{FastReg, PAGE, PageListId, PagedMemory};
use slots::Slots;

mod access;
mod fast;
mod slots;
#[cfg(test)]
mod tests;

/// The kind of a memory region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// Memory that the host keeps mapped.
    Mapped,
    /// Memory that may go at any time: every access may fault softly.
    OnDemand,
    /// A null region: any address, reads give zeros, writes vanish.
    Null,
    /// Pages given by a work request; `addr` counts from the start of the first page.
    Paged,
}

/// A memory region to register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Protection domain.
    pub pd: PdId,
    /// Rights.
    pub access: Access,
    /// First address in the key's own address space (iova; 0 for zero-based).
    pub iova: u64,
    /// Bytes. `u64::MAX` with iova 0 is the whole address space (implicit on-demand).
    pub len: u64,
    /// First address in the host's terms.
    pub addr: u64,
    /// Kind.
    pub kind: RegionKind,
}

/// Type of a memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwType {
    /// Bound by `ibv_bind_mw`, to all QPs of the PD.
    Type1,
    /// Bound by a work request, to the QP of this request.
    Type2,
}

/// A change of the key table requested by a work request or a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyOp {
    /// Bind a window.
    Bind {
        /// The bind.
        bind: MwBind,
        /// PD of the QP.
        pd: PdId,
        /// The QP.
        qpn: Qpn,
    },
    /// Invalidate a window's (or fast-registered region's) key, locally or on the peer's request.
    Invalidate {
        /// The key.
        key: Key,
        /// PD of the QP.
        pd: PdId,
        /// The QP.
        qpn: Qpn,
    },
    /// Give pages to a fast-registered region.
    Register {
        /// The registration.
        reg: FastReg,
        /// PD of the QP.
        pd: PdId,
    },
}

/// The rights of a window. Other bits of a bind are ignored, as ConnectX ignores them in a work
/// request.
const WINDOW_RIGHTS: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// The range and rights of a bound window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Binding {
    /// Key of the window's region.
    mr: Key,
    /// The QP of the bind. A type 2 window opens to this QP alone.
    qpn: Qpn,
    access: Access,
    /// First address in the window's own address space: the region's address, or 0 if zero-based.
    start: u64,
    len: u64,
    /// First address in the host's terms.
    addr: u64,
    kind: RegionKind,
}

/// A memory window; `None` is the free (type 2) or unbound (type 1) state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    pd: PdId,
    ty: MwType,
    binding: Option<Binding>,
}

#[derive(Debug)]
enum Object {
    Region { region: Region, windows: u32 },
    Window(Window),
    Fast(Box<Fast>),
}

/// A valid [`KeyOp`], as its change of the window.
struct Plan {
    /// The window's new key.
    key: Key,
    /// Its new binding.
    binding: Option<Binding>,
}

/// Keys of one device. The host gives the key indices (`random`), so that a peer cannot guess
/// remote keys.
#[derive(Debug, Default)]
pub struct KeyTable {
    slots: Slots<Object>,
    /// Number of bound type 2 windows, so that destroying a QP usually searches nothing.
    bound_type2: usize,
}

impl KeyTable {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Keys in the table (regions and windows).
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Is the table empty?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Registers a region. The key is `random` (index and tag), or has the next free index if the
    /// index of `random` is taken or 0. A zero-based region starts at 0, whatever `iova` says.
    ///
    /// # Errors
    /// `BadArgument` for remote write or atomic access without local write, or for a range that
    /// wraps around the address space; `QueueFull` when the table is full.
    pub fn register(&mut self, region: Region, random: u32) -> Result<Key, Cause> {
        let region = checked_region(region)?;
        self.insert(Object::Region { region, windows: 0 }, random)
    }

    /// Changes a region in place, under the same key (`ibv_rereg_mr`). A refusal changes nothing.
    ///
    /// # Errors
    /// Those of [`KeyTable::register`]; `UnknownKey`; `InUse` while a window is bound to the
    /// region.
    pub fn reregister(&mut self, key: Key, region: Region) -> Result<(), Cause> {
        let new = checked_region(region)?;
        *self.idle_region_mut(key)? = new;
        Ok(())
    }

    /// Removes a region. Refused while a window is bound to the region.
    ///
    /// # Errors
    /// `UnknownKey`, `InUse`.
    pub fn deregister(&mut self, key: Key) -> Result<Region, Cause> {
        let region = *self.idle_region_mut(key)?;
        self.slots.remove(key);
        Ok(region)
    }

    /// Allocates an unbound window.
    ///
    /// # Errors
    /// `QueueFull` when the table is full.
    pub fn alloc_mw(&mut self, pd: PdId, ty: MwType, random: u32) -> Result<Key, Cause> {
        self.insert(Object::Window(Window { pd, ty, binding: None }), random)
    }

    /// Frees a window and unbinds it. The tag of `key` is not checked: a bind in flight may have
    /// changed the tag, and the owner is not told of an invalidate.
    ///
    /// # Errors
    /// `UnknownKey` if the index names no window.
    pub fn dealloc_mw(&mut self, key: Key) -> Result<(), Cause> {
        let (current, window) = self.window_at(key)?;
        self.set_window(key, Plan { key: current, binding: None }, window);
        self.slots.remove(key);
        Ok(())
    }

    /// The region behind a key (whatever its tag), for queries.
    #[must_use]
    pub fn region(&self, key: Key) -> Option<&Region> {
        match self.slots.get(key)? {
            (_, Object::Region { region, .. }) => Some(region),
            (_, Object::Fast(fast)) => fast.region.as_ref(),
            (_, Object::Window(_)) => None,
        }
    }

    /// The window behind a key (whatever its tag): its type, and whether the window is bound.
    #[must_use]
    pub fn window(&self, key: Key) -> Option<(MwType, bool)> {
        self.window_at(key).ok().map(|(_, w)| (w.ty, w.binding.is_some()))
    }

    /// Number of windows bound to a region (whatever the key's tag).
    #[must_use]
    pub fn windows_on(&self, key: Key) -> u32 {
        match self.slots.get(key) {
            Some((_, Object::Region { windows, .. })) => *windows,
            Some((_, Object::Fast(fast))) => fast.windows,
            _ => 0,
        }
    }

    /// Performs a bind or invalidate. A refusal changes nothing.
    ///
    /// # Errors
    /// See [`KeyTable::check_op`].
    pub fn apply(&mut self, op: &KeyOp) -> Result<(), Cause> {
        let plan = match *op {
            KeyOp::Bind { ref bind, pd, qpn } => self.plan_bind(bind, pd, qpn)?,
            KeyOp::Register { ref reg, pd } => return self.apply_fast(reg, pd),
            KeyOp::Invalidate { key, pd, qpn } => {
                if let Object::Fast(fast) = self.exact(key)? {
                    fast.check_invalidate(key, pd)?;
                    if let Some((_, Object::Fast(fast))) = self.slots.get_mut(key) {
                        fast.invalidate();
                    }
                    return Ok(());
                }
                self.plan_invalidate(key, pd, qpn)?
            }
        };
        let key = plan.key;
        let (_, window) = self.window_at(key)?;
        self.set_window(key, plan, window);
        Ok(())
    }

    /// Would [`KeyTable::apply`] succeed?
    ///
    /// # Errors
    /// The broken rule. Binds: IBTA C10-72 … C10-75 and, for type 2, o10-37.2.30; invalidates:
    /// o10-37.2.26.
    pub fn check_op(&self, op: &KeyOp) -> Result<(), Cause> {
        match *op {
            KeyOp::Bind { ref bind, pd, qpn } => self.plan_bind(bind, pd, qpn).map(drop),
            KeyOp::Register { ref reg, pd } => self.plan_fast(reg, pd).map(drop),
            KeyOp::Invalidate { key, pd, qpn } => match self.exact(key)? {
                Object::Fast(fast) => fast.check_invalidate(key, pd),
                _ => self.plan_invalidate(key, pd, qpn).map(drop),
            },
        }
    }

    /// Frees the type 2 windows bound on a QP that is being destroyed, because a later QP with the
    /// same number must not open them. Searches the whole table, but only if type 2 windows are
    /// bound at all.
    pub fn release_qp(&mut self, qpn: Qpn) {
        if self.bound_type2 > 0 {
            self.unbind(|ty, binding| ty == MwType::Type2 && binding.qpn == qpn);
        }
    }

    /// Unbinds all windows of a region (whatever the key's tag), so that the region can be
    /// deregistered. Searches the whole table, but only if windows are bound to the region.
    pub fn unbind_windows(&mut self, mr: Key) {
        if self.windows_on(mr) > 0 {
            self.unbind(|_, binding| binding.mr >> 8 == mr >> 8);
        }
    }

    fn unbind(&mut self, which: impl Fn(MwType, &Binding) -> bool) {
        let bound = |object: &Object| match object {
            Object::Window(Window { ty, binding: Some(binding), .. }) => which(*ty, binding),
            _ => false,
        };
        for key in self.slots.keys_where(bound) {
            if let Ok((key, window)) = self.window_at(key) {
                self.set_window(key, Plan { key, binding: None }, window);
            }
        }
    }

    fn insert(&mut self, object: Object, random: u32) -> Result<Key, Cause> {
        self.slots
            .insert(object, random)
            .ok_or(Cause::QueueFull { queue: "key table", depth: slots::MAX_KEYS })
    }

    fn idle_region_mut(&mut self, key: Key) -> Result<&mut Region, Cause> {
        match self.slots.get_mut(key) {
            Some((current, Object::Region { region, windows })) if *current == key => {
                if *windows == 0 { Ok(region) } else { Err(Cause::InUse { key }) }
            }
            _ => Err(Cause::UnknownKey { key }),
        }
    }

    /// A window and its current key, found by the index.
    fn window_at(&self, key: Key) -> Result<(Key, Window), Cause> {
        match self.slots.get(key) {
            Some((current, Object::Window(window))) => Ok((current, *window)),
            _ => Err(Cause::UnknownKey { key }),
        }
    }

    /// The number of windows bound to a region.
    fn windows_mut(&mut self, key: Key) -> Option<&mut u32> {
        match self.slots.get_mut(key)?.1 {
            Object::Region { windows, .. } => Some(windows),
            Object::Fast(fast) => Some(&mut fast.windows),
            Object::Window(_) => None,
        }
    }

    /// Gives a window its new key and binding, and updates the counts.
    fn set_window(&mut self, key: Key, plan: Plan, old: Window) {
        let type2 = usize::from(old.ty == MwType::Type2);
        if let Some(b) = old.binding {
            self.bound_type2 -= type2;
            if let Some(windows) = self.windows_mut(b.mr) {
                *windows -= 1;
            }
        }
        if let Some(b) = plan.binding {
            self.bound_type2 += type2;
            if let Some(windows) = self.windows_mut(b.mr) {
                *windows += 1;
            }
        }
        if let Some((current, Object::Window(window))) = self.slots.get_mut(key) {
            *current = plan.key;
            window.binding = plan.binding;
        }
    }

    fn plan_bind(&self, bind: &MwBind, pd: PdId, qpn: Qpn) -> Result<Plan, Cause> {
        // The window is found by its index alone, as in ConnectX. A consumer with pipelined binds
        // holds an older tag, and so does a consumer after the peer invalidated the window.
        let (_, window) = self.window_at(bind.mw)?;
        let new_key = bind.bound_key();
        if window.pd != pd {
            return Err(Cause::WrongPd { key: bind.mw });
        }
        if bind.len == 0 {
            // Unbinds without a look at a region. IBTA o10-37.2.40 allows this for type 1 alone.
            // ConnectX allows it for type 2 as well, but only on the QP that bound the window.
            return match window.binding {
                Some(b) if window.ty == MwType::Type2 && b.qpn != qpn => {
                    Err(Cause::WindowNotUsable { key: bind.mw })
                }
                _ => Ok(Plan { key: new_key, binding: None }),
            };
        }
        if window.ty == MwType::Type2 && window.binding.is_some() {
            // A type 2 window is bound from the free state only (IBTA o10-37.2.30).
            return Err(Cause::InUse { key: bind.mw });
        }
        let region = self.local_region(pd, bind.mr)?;
        if region.access.contains(Access::ZERO_BASED) {
            // The mlx5 provider and rxe refuse such a bind, because the peer does not know the
            // window's addresses.
            let rule = "no window on a zero-based region";
            return Err(Cause::BadArgument { what: "mr", rule });
        }
        let access = bind.access & WINDOW_RIGHTS;
        let mut needed = Access::MW_BIND;
        if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
            needed |= Access::LOCAL_WRITE;
        }
        demand(bind.mr, needed, region.access)?;
        let (start, size) = (region.iova, region.len);
        let MwBind { mr, addr: va, len, .. } = *bind;
        let offset = inside((start, size), va, len).ok_or(Cause::OutOfBounds {
            key: mr,
            va,
            len,
            start,
            size,
        })?;
        let binding = Binding {
            mr,
            qpn,
            access,
            start: if bind.access.contains(Access::ZERO_BASED) { 0 } else { va },
            len,
            addr: region.addr + offset,
            kind: region.kind,
        };
        Ok(Plan { key: new_key, binding: Some(binding) })
    }

    /// Local and remote invalidates have the same rules: a bound type 2 window, on its own QP and
    /// PD.
    fn plan_invalidate(&self, key: Key, pd: PdId, qpn: Qpn) -> Result<Plan, Cause> {
        let Object::Window(window) = self.exact(key)? else {
            let on = "a registered memory region";
            return Err(Cause::OpNotSupported { op: "invalidate", on });
        };
        if window.pd != pd {
            return Err(Cause::WrongPd { key });
        }
        match window.binding {
            _ if window.ty == MwType::Type1 => {
                Err(Cause::OpNotSupported { op: "invalidate", on: "a type 1 memory window" })
            }
            // A second invalidate fails (IBTA o10-37.2.26, NDK-6).
            Some(b) if b.qpn == qpn => Ok(Plan { key, binding: None }),
            _ => Err(Cause::WindowNotUsable { key }),
        }
    }
}

/// The rules of a registration.
fn checked_region(mut region: Region) -> Result<Region, Cause> {
    let bad = |what, rule| Err(Cause::BadArgument { what, rule });
    let access = region.access;
    if access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC)
        && !access.contains(Access::LOCAL_WRITE)
    {
        let rule = "IBV_ACCESS_REMOTE_WRITE and _REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE";
        return bad("access", rule);
    }
    if access.contains(Access::ZERO_BASED) {
        region.iova = 0;
    }
    if region.kind == RegionKind::Paged && access.contains(Access::ZERO_BASED) {
        return bad("access", "a fast registration is not zero-based");
    }
    if region.kind != RegionKind::Null {
        if region.addr.checked_add(region.len).is_none() {
            return bad("length", "address plus length wraps around the address space");
        }
        if region.iova.checked_add(region.len).is_none() {
            return bad("iova", "iova plus length wraps around the address space");
        }
    }
    Ok(region)
}
