//! Registered memory.
use crate::report::CodeAddress;
use crate::values::Piece;
use std::collections::{HashMap, VecDeque};

/// Most deregistered regions that are kept.
const KEPT: usize = 64;

/// A registered region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Local key.
    pub lkey: u32,
    /// The first address in requests.
    pub start: u64,
    /// Length in bytes.
    pub length: u64,
    /// First address in the program's memory; `None` if the region is not in the program's memory.
    pub memory: Option<u64>,
    /// The call that registered the region.
    pub place: CodeAddress,
}

impl Region {
    pub(crate) fn holds(&self, piece: &Piece) -> bool {
        piece.addr >= self.start
            && piece.addr - self.start <= self.length
            && u64::from(piece.length) <= self.length - (piece.addr - self.start)
    }
}

/// A region that was deregistered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deregistered {
    pub(crate) registered: CodeAddress,
    pub(crate) deregistered: CodeAddress,
}

/// The registered regions shared with the child of a fork. Has a fixed size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shared {
    pub(crate) regions: usize,
    /// The lowest local key, and the call that registered its region.
    pub(crate) first: Option<(u32, CodeAddress)>,
    /// The end of the last mapping.
    pub(crate) end: u64,
}

impl Shared {
    /// Are there any shared regions?
    #[must_use]
    pub fn any(&self) -> bool {
        self.regions > 0
    }
}

/// The regions by key.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    by_key: HashMap<u32, Region>,
    /// The last deregistrations by key, the oldest first.
    last: VecDeque<(u32, Deregistered)>,
}

impl Regions {
    pub(crate) fn add(&mut self, region: Region) {
        self.last.retain(|(key, _)| *key != region.lkey);
        self.by_key.insert(region.lkey, region);
    }

    pub(crate) fn remove(&mut self, lkey: u32) {
        self.by_key.remove(&lkey);
    }

    /// Notes the place of a deregistration.
    pub(crate) fn note(&mut self, lkey: u32, of: Deregistered) {
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back((lkey, of));
    }

    /// The deregistration of the region that had this key.
    pub(crate) fn deregistered(&self, lkey: u32) -> Option<Deregistered> {
        self.last.iter().rev().find(|(key, _)| *key == lkey).map(|(_, of)| *of)
    }

    pub(crate) fn get(&self, lkey: u32) -> Option<&Region> {
        self.by_key.get(&lkey)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Region> {
        self.by_key.values()
    }

    /// The location of a piece in the program's memory, if the whole piece is registered.
    pub(crate) fn memory_of(&self, piece: &Piece) -> Option<u64> {
        let region = self.get(piece.lkey).filter(|region| region.holds(piece))?;
        Some(region.memory? + (piece.addr - region.start))
    }
}
