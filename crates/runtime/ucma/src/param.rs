//! Parameters that the two ends of a connection exchange.

/// Kinds of queue pairs, as `ibv_qp_type` numbers them.
pub mod qp_type {
    #![allow(missing_docs)]
    pub const RC: u8 = 2;
    pub const UC: u8 = 3;
    pub const UD: u8 = 4;
    pub const XRC_INI: u8 = 9;
    pub const XRC_TGT: u8 = 10;
}

/// Parameters of a connection. The private data is borrowed in a request and owned in an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnParam<Data> {
    /// Number of the queue pair.
    pub qpn: u32,
    /// Q_Key, for datagrams only.
    pub qkey: u32,
    /// Private data.
    pub private_data: Data,
    /// Does the queue pair receive from a shared receive queue?
    pub srq: bool,
    /// RDMA reads and atomics that this end answers at one time.
    pub responder_resources: u8,
    /// RDMA reads and atomics that this end sends at one time.
    pub initiator_depth: u8,
    /// End-to-end flow control.
    pub flow_control: bool,
    /// Transport retries.
    pub retry_count: u8,
    /// Retries after RNR.
    pub rnr_retry_count: u8,
    /// The request has parameters.
    pub valid: bool,
}
