//! Input values of the ledger.
use std::fmt;

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
    /// The status in words.
    pub status: &'static str,
    /// The request was flushed, because its queue pair is in the error state.
    pub flushed: bool,
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

/// Kind of the events of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Completion events, of a channel.
    Completions,
    /// Asynchronous events, of a context.
    Asynchronous,
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reads::Completions => "completion events",
            Reads::Asynchronous => "asynchronous events",
        })
    }
}

/// A descriptor from which a program takes events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Descriptor number.
    pub number: i32,
    /// Identity of the file, because another file may get the same number later.
    pub file: u64,
    /// The program's handle of the channel or context.
    pub handle: usize,
}

/// A thread took an event and left more events, and no thread has taken them yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The descriptor.
    pub of: Descriptor,
    /// Kind of the events.
    pub reads: Reads,
    /// The thread that took the last event.
    pub thread: i32,
    /// Number of events taken so far.
    pub taken: u64,
}
