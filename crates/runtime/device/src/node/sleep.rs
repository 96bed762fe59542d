//! An announced sleep: peers on this host ring a doorbell while a thread sleeps.
use super::carriers::Rings;
use super::core::Node;

/// The thread counts as asleep while this value lives.
pub(crate) struct Asleep<'a> {
    node: &'a Node,
    rings: Option<Rings<'a>>,
    /// A packet has already arrived.
    pub(crate) needless: bool,
}

impl<'a> Asleep<'a> {
    /// The thread is about to sleep on [`Node::packets_fd`].
    pub(crate) fn begin(node: &'a Node) -> Self {
        let rings = if node.is_stale() { None } else { Rings::of(node) };
        let needless = rings.as_ref().is_some_and(Rings::before_sleep);
        Asleep { node, rings, needless }
    }
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        // A handler may have called `fork`: the child's announcement is the parent's.
        if let Some(rings) = &self.rings
            && !self.node.is_stale()
        {
            rings.host.awake();
        }
    }
}
