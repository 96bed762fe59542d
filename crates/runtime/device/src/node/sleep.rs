//! Going to sleep where peers on this host see it: they ring a bell then.
use crate::host::Lanes;
use crate::node::Node;

/// While it lives the thread counts as asleep.
pub(crate) struct Asleep<'a> {
    lanes: Option<&'a Lanes>,
    /// Something has come already.
    pub(crate) needless: bool,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        if let Some(lanes) = self.lanes {
            lanes.awake();
        }
    }
}

impl Node {
    /// The thread is about to sleep on [`Node::packets_fd`].
    pub(crate) fn sleeps(&self) -> Asleep<'_> {
        let lanes = self.lanes.as_ref();
        let needless = lanes.is_some_and(|lanes| {
            lanes.sleeps();
            lanes.any() && self.rings_hold(lanes)
        });
        Asleep { lanes, needless }
    }
}
