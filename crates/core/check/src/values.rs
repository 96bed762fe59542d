//! Input values of the ledger.

/// A scatter/gather element of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First address.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// Local key.
    pub lkey: u32,
}

/// A queue pair with its sizes, as returned to the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePair {
    /// Queue pair number.
    pub number: u32,
    /// Number of the send queue's CQ.
    pub send_cq: Option<u32>,
    /// Number of the receive queue's CQ.
    pub recv_cq: Option<u32>,
    /// Size of the send queue.
    pub max_send: usize,
    /// Size of the receive queue.
    pub max_recv: usize,
}

/// A polled completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The number of the queue pair.
    pub queue_pair: u32,
    /// The `wr_id` of the request.
    pub wr_id: u64,
    /// The status is success.
    pub ok: bool,
    /// The request is a receive.
    pub receive: bool,
    /// The name of the status.
    pub status: &'static str,
}

/// A post that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Number of requests accepted before the failed request.
    pub taken: usize,
    /// The queue is full; a later post may succeed.
    pub full: bool,
    /// The reason, in words.
    pub why: String,
}
