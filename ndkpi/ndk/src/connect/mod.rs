//! Connectors, listeners and shared endpoints.
//!
//! The connection manager of InfiniBand (IBTA volume 1, chapter 12) connects two queue pairs,
//! between the addresses in NDKPI's calls. Each connector is an rdma_cm id in the port space TCP,
//! so the peer may also be a program that uses librdmacm. An initiator makes a [`Connector`] and
//! connects to the address of a [`Listener`]. The listener's side gets a connect event with a new
//! connector, and accepts or rejects.
//!
//! | initiator | listener's side |
//! |---|---|
//! | [`Connector::connect`] | connect event |
//! | | [`Connector::accept`]: the queue pair receives from here on |
//! | its completion: [`Connector::get_connection_data`] has what was agreed | |
//! | [`Connector::complete_connect`]: the queue pair receives and sends | its completion: the queue pair sends, too |
//!
//! * **Read limits** are the smallest limits that both consumers and both adapters allow. The
//!   inbound limit of each side is matched with the outbound limit of the other.
//! * **Disconnect.** [`Connector::disconnect`] tells the peer, which gets a disconnect event, and
//!   then cancels the requests outstanding on its own queue pair. The peer's requests are cancelled
//!   only by the peer's own disconnect, flush or close. A lost peer also causes the event, and then
//!   outstanding requests are cancelled. A peer is lost if its process ended, its host is silent,
//!   its queue pair failed, or its connector was closed without a disconnect.
//! * **Timeouts**: a connect ends after 30 seconds without an answer, an accept after 30 seconds
//!   without the initiator's completion, and a disconnect after 5 seconds, all with `IO_TIMEOUT`. A
//!   silent host is lost when its queue pair does not acknowledge any more.
//! * **Addresses.** An address with its port belongs to a single user until the user is closed: a
//!   listener with all connectors of its connections, a connector, or a shared endpoint with all
//!   its connectors.
//! * **Closing** a connector aborts its connection or attempt. From the beginning of its close, a
//!   listener refuses connections. The close of the listener is pending until its connectors are
//!   closed, accepted or not. Until then, these connectors can still be accepted.
//! * **Private data** has no length in the messages. The received data has the maximum length: 56
//!   bytes with a connect, 196 with an accept, 148 with a reject. Bytes that the peer did not set
//!   are zero.
//!
//! A single thread of each adapter serves all ids. Callbacks run on the adapter's dispatcher.
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

/// Called once with the reason when the peer leaves.
pub type DisconnectEvent = Box<dyn FnOnce(DisconnectReason) + Send>;

/// The data in the peer's connect, accept or reject.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ConnectionData {
    /// The effective limits. Zero after a refusal.
    pub reads: ReadLimits,
    /// The peer's private data, padded with zeros to the maximum length in the message.
    pub private_data: Vec<u8>,
}

const _: () = {
    use adverb_ucma::ids::{REJECT_DATA, REPLY_DATA, REQUEST_DATA};
    assert!(REQUEST_DATA == crate::info::MAX_CALLER_DATA as usize);
    assert!(REPLY_DATA >= crate::info::MAX_CALLEE_DATA as usize);
    assert!(REJECT_DATA == crate::info::MAX_CALLEE_DATA as usize);
};
