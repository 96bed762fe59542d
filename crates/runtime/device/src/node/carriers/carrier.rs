//! The interface of a carrier.
use crate::node::batch::{Ask, Receiver};
use crate::node::queue_pair::{AnyQp, QpInner};
use crate::node::tx::Tx;
use std::os::fd::BorrowedFd;

use super::road::Room;

/// A carrier of packets between queue pairs.
pub(in crate::node) trait Carrier {
    /// Sends the packets of a queue pair by this carrier.
    fn pump(&self, qp: &AnyQp, inner: &mut QpInner, tx: &mut Tx) -> Room;

    /// Takes arrived packets and gives them to the queue pairs. `true` if there were any.
    fn receive(&self, rx: &mut Receiver, ask: &Ask) -> bool;

    /// Names the descriptors that are readable after an arrival. The background thread waits on
    /// them.
    fn sources(&self, _each: &mut dyn FnMut(BorrowedFd<'_>)) {}

    /// Announces that a thread is about to sleep on the sources. `true`: a packet has already
    /// arrived, and the sleep is needless. [`Carrier::after_sleep`] ends the announcement.
    fn before_sleep(&self) -> bool {
        false
    }

    /// The thread that was about to sleep is awake.
    fn after_sleep(&self) {}

    /// May a missing packet of a queue pair still be on the way within this host? If so, silence of
    /// the peer does not mean that a packet was lost.
    fn is_behind(&self, inner: &QpInner) -> bool;

    /// Drops the state of an earlier connection, at RESET or at the end of the queue pair.
    fn disconnect(&self, inner: &mut QpInner, end: DisconnectReason);
}

/// The reason for disconnecting a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DisconnectReason {
    /// RESET: the queue pair may be connected again. Unsent packets are dropped.
    Reset,
    /// Destruction: unsent packets are still sent.
    Destroyed,
}
