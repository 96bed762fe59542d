//! The shape of a carrier.
use crate::node::batch::{Ask, Receiver};
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::tx::Tx;
use std::os::fd::BorrowedFd;

use super::road::Room;

/// What carries packets of queue pairs.
pub(in crate::node) trait Carrier {
    /// Sends what a queue pair has for this carrier.
    fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) -> Room;

    /// Takes what has arrived and gives it to the queue pairs. `true` if there was anything.
    fn receive(&self, rx: &mut Receiver, ask: &Ask) -> bool;

    /// Names the descriptors that are readable when something has arrived. The background thread
    /// waits on them.
    fn sources(&self, _each: &mut dyn FnMut(BorrowedFd<'_>)) {}

    /// Announces that a thread is about to sleep on the sources. `true`: something has arrived
    /// already, and the sleep is needless. [`Carrier::after_sleep`] takes the announcement back.
    fn before_sleep(&self) -> bool {
        false
    }

    /// The thread that was about to sleep is awake.
    fn after_sleep(&self) {}

    /// May what a queue pair misses still be on its way within this host? Then its silence does not
    /// mean that a packet was lost.
    fn is_behind(&self, inner: &QpInner) -> bool;

    /// The queue pair is in RESET, or ends: nothing of an earlier connection is kept.
    fn disconnect(&self, inner: &mut QpInner, end: End);
}

/// Why a queue pair is disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is in RESET, and may be connected again. What waits to be sent is dropped.
    Reset,
    /// It is destroyed. What waits to be sent is sent all the same.
    Destroyed,
}
