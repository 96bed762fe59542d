//! What the ledger is told.

/// An element of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it begins.
    pub addr: u64,
    /// Its bytes.
    pub length: u32,
    /// The key.
    pub lkey: u32,
}

/// A queue pair with its sizes, as the program was told them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePair {
    /// Its number.
    pub number: u32,
    /// The number of the CQ of its send queue.
    pub send_cq: Option<u32>,
    /// The number of the CQ of its receive queue.
    pub recv_cq: Option<u32>,
    /// Places of its send queue.
    pub max_send: usize,
    /// Places of its receive queue.
    pub max_recv: usize,
}

/// A completion that was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// The number of the queue pair.
    pub queue_pair: u32,
    /// The program's number of the request.
    pub wr_id: u64,
    /// It worked.
    pub ok: bool,
    /// It is of a receive.
    pub receive: bool,
}

/// A post that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// So many requests before it were taken.
    pub taken: usize,
    /// The queue has no place, which may be different the next time.
    pub full: bool,
    /// The reason, in words.
    pub why: String,
}
