//! When a plain ACK leaves, and its order among packets that leave together.

/// May a plain ACK wait for another packet?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckDelay {
    /// The ACK leaves at once.
    None,
    /// The ACK waits until another packet leaves.
    Alone,
    /// Another packet has left: the ACK leaves behind this packet, in the same run.
    Accompanied,
}

/// The position of a plain ACK that leaves together with a request of one packet.
///
/// Programs rely on the order of a NIC, which acknowledges a message on arrival: a send completes
/// before the answer to the send is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckOrder {
    /// In front of the request.
    Ahead,
    /// Behind the request, in the same run of packets. For hosts with a receiver that takes the ACK
    /// of a run first. The reason: a run of UDP segments may only end with a shorter segment.
    #[default]
    Behind,
}
