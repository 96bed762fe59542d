//! When a plain ACK leaves, and where among the packets that leave with it.

/// May a plain ACK wait for company?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckDelay {
    /// It leaves at once.
    None,
    /// It waits until something else leaves.
    Alone,
    /// Something else has left: it leaves behind that, in the same run.
    Accompanied,
}

/// Where a plain ACK goes that leaves together with a request of one packet.
///
/// Programs rely on the order of a NIC, which acknowledges a message when it arrives: a send
/// completes before the answer to it is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckOrder {
    /// In front of it.
    Ahead,
    /// Behind it, in the same run of packets. For hosts whose receiver takes the ACK of a run
    /// first: a run of UDP segments may only end with a short one.
    #[default]
    Behind,
}
