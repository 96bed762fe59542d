//! Connectors, listeners and shared endpoints.
//!
//! Two queue pairs are connected by the connection manager of InfiniBand (IBTA volume 1, chapter
//! 12), between the addresses that NDKPI's calls name, in rdma_cm's port space TCP: each connector
//! is an rdma_cm id. Peers may be programs of librdmacm as well. An initiator makes a [`Connector`]
//! and connects it to the address where a [`Listener`] listens; that side gets a connect event with
//! a connector of its own, and accepts or rejects.
//!
//! | initiator | listener's side |
//! |---|---|
//! | [`Connector::connect`] | connect event |
//! | | [`Connector::accept`]: the queue pair receives from here on |
//! | its completion: [`Connector::get_connection_data`] has what was agreed | |
//! | [`Connector::complete_connect`]: the queue pair receives and sends | its completion: the queue pair sends, too |
//!
//! * **Read limits** are the smallest of what both consumers and both adapters allow, each side's
//!   inbound with the other's outbound.
//! * **Disconnect.** [`Connector::disconnect`] tells the peer, whose disconnect event comes, and
//!   then cancels what is outstanding on its own queue pair. The peer's requests are not cancelled
//!   by that, but by its own disconnect, flush or close. A peer that is lost (its process ended,
//!   its host is silent, its queue pair failed, its connector was closed without a disconnect)
//!   brings the event, too, and cancels what is outstanding.
//! * **Waits end**: a connect after 30 seconds without an answer, an accept after 30 seconds
//!   without the initiator's completion, a disconnect after 5 seconds, all with `IO_TIMEOUT`; a
//!   silent host is lost when its queue pair does not acknowledge any more.
//! * **Addresses.** An address with its port belongs to one listener with all connectors it
//!   brought, to one connector, or to one shared endpoint with all its connectors, until all of
//!   these are closed.
//! * **Closing** a connector aborts what it has. A listener refuses from its close on; its close is
//!   pending until its connectors are closed, accepted or not, and these can still be accepted.
//! * **Private data** has no length in the messages: what comes is as long as there is room (56
//!   bytes with a connect, 196 with an accept, 148 with a reject), zero where the peer put nothing.
//!
//! One thread an adapter serves all ids; callbacks run on the adapter's dispatcher.
mod conn_id;
mod connector;
mod endpoint;
pub(crate) mod handshake;
mod link;
mod listener;
pub(crate) mod message;
mod shared_endpoint;
mod worker;

pub use connector::Connector;
pub use listener::Listener;
pub use message::{DisconnectReason, ReadLimits};
pub use shared_endpoint::SharedEndpoint;
pub(crate) use worker::Network;

/// Called once when the peer leaves, with the reason.
pub type DisconnectEvent = Box<dyn FnOnce(DisconnectReason) + Send>;

/// What the peer said when it connected, accepted or refused.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ConnectionData {
    /// Effective limits; zero after a refusal.
    pub reads: ReadLimits,
    /// The peer's private data, with zeros behind it up to the length that the message has room
    /// for.
    pub private_data: Vec<u8>,
}

const _: () = {
    use adverb_ucma::ids::{REJECT_DATA, REPLY_DATA, REQUEST_DATA};
    assert!(REQUEST_DATA == crate::info::MAX_CALLER_DATA as usize);
    assert!(REPLY_DATA >= crate::info::MAX_CALLEE_DATA as usize);
    assert!(REJECT_DATA == crate::info::MAX_CALLEE_DATA as usize);
};
