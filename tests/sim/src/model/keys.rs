//! A naive table of keys. A list is searched for the memory that a key opens.
use adverb_engine::keys::{FastReg, KeyOp, PAGE, PageListId, Region, RegionKind};
use adverb_engine::wr::MwBind;
use adverb_engine::{Access, Key, PdId, Qpn};

/// Pieces of memory, in order.
pub(crate) type Pieces = Vec<(u64, u32)>;

/// The memory behind a key's address space.
#[derive(Clone, Debug)]
enum Backing {
    Flat(u64),
    /// Memory with possible holes.
    OnDemand(u64),
    /// Offset of the first byte in the first page, and the pages.
    Pages(u64, Vec<u64>),
}

/// The memory that a key opens at the moment.
#[derive(Clone, Debug)]
struct Opened {
    access: Access,
    start: u64,
    len: u64,
    backing: Backing,
}

#[derive(Clone, Debug)]
struct Bound {
    opened: Opened,
    qpn: Qpn,
    /// Index part of the key of the window's region.
    region: u32,
}

#[derive(Clone, Debug)]
enum Kind {
    Region(Opened),
    /// Of type 2.
    Window(Option<Bound>),
    Fast {
        opened: Option<Opened>,
        staged: Vec<(PageListId, Vec<u64>)>,
    },
}

#[derive(Clone, Debug)]
struct ModelKey {
    key: Key,
    pd: PdId,
    kind: Kind,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Keys(Vec<ModelKey>);

impl Keys {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn region(&mut self, key: Key, region: &Region) {
        let Region { pd, access, iova: start, len, addr, kind } = *region;
        let backing = match kind {
            RegionKind::OnDemand => Backing::OnDemand(addr),
            _ => Backing::Flat(addr),
        };
        let opened = Opened { access, start, len, backing };
        self.0.push(ModelKey { key, pd, kind: Kind::Region(opened) });
    }
    /// May memory of this key have holes?
    pub(crate) fn is_on_demand(&self, key: Key) -> bool {
        let on_demand = |o: &Opened| matches!(o.backing, Backing::OnDemand(_));
        matches!(self.exact(key), Some(ModelKey { kind: Kind::Region(o), .. }) if on_demand(o))
    }
    pub(crate) fn window(&mut self, key: Key, pd: PdId) {
        self.0.push(ModelKey { key, pd, kind: Kind::Window(None) });
    }
    pub(crate) fn fast(&mut self, key: Key, pd: PdId) {
        self.0.push(ModelKey { key, pd, kind: Kind::Fast { opened: None, staged: Vec::new() } });
    }
    pub(crate) fn remove(&mut self, key: Key) {
        self.0.retain(|e| e.key != key);
    }
    pub(crate) fn stage(&mut self, key: Key, list: PageListId, pages: &[u64]) {
        if let Some(ModelKey { kind: Kind::Fast { staged, .. }, .. }) = self.of_index_mut(key) {
            staged.push((list, pages.to_vec()));
        }
    }
    pub(crate) fn unstage(&mut self, key: Key, list: PageListId) {
        if let Some(ModelKey { kind: Kind::Fast { staged, .. }, .. }) = self.of_index_mut(key) {
            staged.retain(|(id, _)| *id != list);
        }
    }
    /// The present key with the same index; the tag changes.
    pub(crate) fn current(&self, key: Key) -> Key {
        self.of_index(key).map_or(key, |e| e.key)
    }
    /// Range of a key, for a region, window or fast-registered region: (first address, bytes).
    pub(crate) fn span(&self, key: Key) -> Option<(u64, u64)> {
        let opened = match &self.exact(key)?.kind {
            Kind::Region(o) => o,
            Kind::Window(b) => &b.as_ref()?.opened,
            Kind::Fast { opened, .. } => opened.as_ref()?,
        };
        Some((opened.start, opened.len))
    }

    fn exact(&self, key: Key) -> Option<&ModelKey> {
        self.0.iter().find(|e| e.key == key)
    }
    fn of_index(&self, key: Key) -> Option<&ModelKey> {
        self.0.iter().find(|e| e.key >> 8 == key >> 8)
    }
    fn of_index_mut(&mut self, key: Key) -> Option<&mut ModelKey> {
        self.0.iter_mut().find(|e| e.key >> 8 == key >> 8)
    }
    fn windows_on(&self, region: u32) -> usize {
        let on = |e: &&ModelKey| matches!(&e.kind, Kind::Window(Some(b)) if b.region == region);
        self.0.iter().filter(on).count()
    }

    /// A region by key, for local access and binds.
    fn open_region(&self, pd: PdId, key: Key) -> Option<&Opened> {
        let entry = self.exact(key).filter(|e| e.pd == pd)?;
        match &entry.kind {
            Kind::Region(opened) => Some(opened),
            Kind::Fast { opened, .. } => opened.as_ref(),
            Kind::Window(_) => None,
        }
    }

    /// The memory, if this device may reach these bytes by a local key.
    pub(crate) fn local(
        &self,
        pd: PdId,
        key: Key,
        need: Access,
        va: u64,
        len: u32,
    ) -> Option<Pieces> {
        if len == 0 {
            return Some(Vec::new());
        }
        self.open_region(pd, key)?.pieces(need, va, len)
    }

    /// The memory, if the peer of `qpn` may reach these bytes.
    pub(crate) fn remote(
        &self,
        (pd, qpn): (PdId, Qpn),
        key: Key,
        need: Access,
        va: u64,
        len: u32,
    ) -> Option<Pieces> {
        if len == 0 {
            return Some(Vec::new());
        }
        match &self.exact(key).filter(|e| e.pd == pd)?.kind {
            Kind::Window(Some(bound)) if bound.qpn == qpn => bound.opened.pieces(need, va, len),
            Kind::Window(_) => None,
            _ => self.open_region(pd, key)?.pieces(need, va, len),
        }
    }

    /// Performs an operation if allowed, and returns whether the operation was allowed.
    pub(crate) fn perform(&mut self, op: &KeyOp) -> bool {
        match *op {
            KeyOp::Bind { bind, pd, qpn } => self.bind(&bind, pd, qpn).is_some(),
            KeyOp::Invalidate { key, pd, qpn } => {
                let may = self.may_invalidate(key, pd, qpn);
                if may && let Some(entry) = self.of_index_mut(key) {
                    match &mut entry.kind {
                        Kind::Window(bound) => *bound = None,
                        Kind::Fast { opened, .. } => *opened = None,
                        Kind::Region(_) => {}
                    }
                }
                may
            }
            KeyOp::Register { reg, pd } => self.register(&reg, pd).is_some(),
        }
    }

    pub(crate) fn may_invalidate(&self, key: Key, pd: PdId, qpn: Qpn) -> bool {
        let Some(entry) = self.exact(key).filter(|e| e.pd == pd) else { return false };
        match &entry.kind {
            Kind::Region(_) => false,
            Kind::Window(bound) => bound.as_ref().is_some_and(|b| b.qpn == qpn),
            Kind::Fast { opened, .. } => opened.is_some() && self.windows_on(key >> 8) == 0,
        }
    }

    fn bind(&mut self, bind: &MwBind, pd: PdId, qpn: Qpn) -> Option<()> {
        let window = self.of_index(bind.mw).filter(|e| e.pd == pd)?;
        let Kind::Window(bound) = &window.kind else { return None };
        let new = if bind.len == 0 {
            if bound.as_ref().is_some_and(|b| b.qpn != qpn) {
                return None;
            }
            None
        } else {
            if bound.is_some() {
                return None;
            }
            let opened = self.open_region(pd, bind.mr)?;
            let mut need = Access::MW_BIND;
            if bind.access.intersects(Access::REMOTE_WRITE | Access::REMOTE_ATOMIC) {
                need |= Access::LOCAL_WRITE;
            }
            let skip = bind.addr.checked_sub(opened.start)?;
            if !opened.access.contains(need) || skip + bind.len > opened.len {
                return None;
            }
            let backing = match &opened.backing {
                Backing::Flat(addr) => Backing::Flat(addr + skip),
                Backing::OnDemand(addr) => Backing::OnDemand(addr + skip),
                Backing::Pages(first, pages) => Backing::Pages(first + skip, pages.clone()),
            };
            let start = if bind.access.contains(Access::ZERO_BASED) { 0 } else { bind.addr };
            let access = bind.access - Access::ZERO_BASED;
            let opened = Opened { access, start, len: bind.len, backing };
            Some(Bound { opened, qpn, region: bind.mr >> 8 })
        };
        let entry = self.of_index_mut(bind.mw)?;
        entry.key = (entry.key >> 8 << 8) | (bind.new_key % 256);
        entry.kind = Kind::Window(new);
        Some(())
    }

    fn register(&mut self, reg: &FastReg, pd: PdId) -> Option<()> {
        let entry = self.of_index_mut(reg.mr).filter(|e| e.pd == pd)?;
        let Kind::Fast { opened, staged } = &mut entry.kind else { return None };
        if opened.is_some() {
            return None;
        }
        let at = staged.iter().position(|(id, _)| *id == reg.pages)?;
        // Lists of earlier requests are dropped as well.
        let (_, pages) = staged.drain(..=at).next_back()?;
        let backing = Backing::Pages(u64::from(reg.first), pages);
        *opened = Some(Opened { access: reg.access, start: reg.iova, len: reg.len, backing });
        entry.key = reg.new_key;
        Some(())
    }
}

impl Opened {
    fn pieces(&self, need: Access, va: u64, len: u32) -> Option<Pieces> {
        let skip = va.checked_sub(self.start)?;
        if !self.access.contains(need) || skip.checked_add(u64::from(len))? > self.len {
            return None;
        }
        Some(match &self.backing {
            Backing::Flat(addr) | Backing::OnDemand(addr) => vec![(addr + skip, len)],
            Backing::Pages(first, pages) => {
                let (mut at, mut left, mut pieces) = (first + skip, u64::from(len), Vec::new());
                while left > 0 {
                    let take = (PAGE - at % PAGE).min(left);
                    pieces.push((pages[(at / PAGE) as usize] + at % PAGE, take as u32));
                    at += take;
                    left -= take;
                }
                pieces
            }
        })
    }
}
