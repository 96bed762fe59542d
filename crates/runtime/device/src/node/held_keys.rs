//! The lock of the keys, kept from one packet of a run to the next.
use super::core::Node;
use crate::ranks;
use adverb_engine::KeyTable;
use adverb_sync::RankedReadGuard;

/// The read lock of the keys, taken when a step first needs the keys. A locked instruction waits
/// for all stores before it, and so for the whole payload of the packet before. The lock is
/// released before work that changes keys, or that takes locks of its own.
pub(super) struct HeldKeys<'n> {
    node: &'n Node,
    guard: Option<RankedReadGuard<'n, KeyTable, ranks::Keys>>,
}

impl<'n> HeldKeys<'n> {
    #[inline]
    pub(super) fn of(node: &'n Node) -> Self {
        HeldKeys { node, guard: None }
    }

    #[inline]
    pub(super) fn get(&mut self) -> &KeyTable {
        self.guard.get_or_insert_with(|| self.node.keys.read())
    }

    #[inline]
    pub(super) fn release(&mut self) {
        self.guard = None;
    }
}
