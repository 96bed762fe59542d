//! The records of a part.
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The name of a call.
pub type Name = Cow<'static, str>;

/// A line of a part. Times are nanoseconds of the monotonic clock, which all processes of a machine
/// share. `t` is the start, `d` the duration, `tid` the thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
pub enum Record {
    /// The first line.
    Process {
        t: u64,
        pid: u32,
        name: String,
        command: Vec<String>,
        wall: u64,
    },
    /// Precedes the records of a thread.
    Thread {
        tid: i32,
        name: String,
    },
    /// A call without a record of its own below: its arguments as words, and its result.
    Call {
        t: u64,
        d: u64,
        tid: i32,
        call: Name,
        args: [u64; 6],
        result: u64,
        errno: i32,
    },
    /// Requests were posted to a send queue; the queue accepted the first `taken`.
    Post {
        t: u64,
        d: u64,
        tid: i32,
        call: Name,
        qp: u32,
        requests: Vec<Request>,
        taken: usize,
        result: i32,
    },
    /// Receives were posted to a queue pair, or to a shared receive queue.
    Receive {
        t: u64,
        d: u64,
        tid: i32,
        call: Name,
        qp: Option<u32>,
        srq: Option<u32>,
        requests: Vec<Request>,
        taken: usize,
        result: i32,
    },
    /// Completions were polled; or `empty` polls in a row found nothing.
    Poll {
        t: u64,
        d: u64,
        tid: i32,
        call: Name,
        cq: u32,
        empty: u64,
        done: Vec<Done>,
        result: i32,
    },
    /// A CQ was armed.
    Arm {
        t: u64,
        d: u64,
        tid: i32,
        call: Name,
        cq: u32,
        solicited: bool,
        result: i32,
    },
    /// A thread waited for an event and took it from a CQ.
    Taken {
        t: u64,
        d: u64,
        tid: i32,
        call: Name,
        cq: Option<u32>,
        errno: i32,
    },
    /// A CQ was made, or resized.
    Cq {
        t: u64,
        cq: u32,
        entries: u32,
    },
    CqDestroyed {
        t: u64,
        cq: u32,
    },
    QueuePair {
        t: u64,
        qp: u32,
        transport: String,
        send_cq: Option<u32>,
        recv_cq: Option<u32>,
        srq: Option<u32>,
    },
    QueuePairDestroyed {
        t: u64,
        qp: u32,
    },
    /// Attributes set on a queue pair.
    Modified {
        t: u64,
        qp: u32,
        state: Option<String>,
        mtu: Option<u32>,
        dest: Option<u32>,
        sq_psn: Option<u32>,
        rq_psn: Option<u32>,
    },
    /// The device adds a completion to a CQ.
    Completion {
        t: u64,
        tid: i32,
        cq: u32,
        of: Done,
    },
    /// The device makes an event of a CQ.
    Event {
        t: u64,
        tid: i32,
        cq: u32,
    },
    /// A packet was sent or received.
    Packet {
        t: u64,
        tid: i32,
        sent: bool,
        src: String,
        dst: String,
        opcode: u8,
        qp: u32,
        psn: u32,
        /// For a datagram: the queue pair of the sender.
        from: Option<u32>,
        /// For an acknowledgement: its syndrome.
        syndrome: Option<u8>,
        bytes: usize,
        note: Name,
    },
    /// A hunt's choice at a call: its name, its effect and the rule that allows it, and the place
    /// of the call.
    Choice {
        t: u64,
        tid: i32,
        name: String,
        effect: Name,
        rule: Name,
        place: String,
    },
    /// This many records before this had no room.
    Dropped {
        t: u64,
        records: u64,
    },
    /// The process ends normally.
    End {
        t: u64,
    },
}

/// A request as posted; `opcode` as in `ibv_send_wr`, or 128 for a receive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    pub wr_id: u64,
    pub opcode: u32,
    pub bytes: u64,
    pub signaled: bool,
    pub solicited: bool,
}

/// A completion; `status` and `opcode` as in `ibv_wc`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub qp: u32,
    pub wr_id: u64,
    pub status: u32,
    pub opcode: u32,
    pub bytes: u32,
}

impl Done {
    /// Is this the completion of a receive? `IBV_WC_RECV` is a bit of all receive opcodes.
    #[must_use]
    pub fn is_receive(&self) -> bool {
        self.opcode & 128 != 0
    }
}

impl Record {
    /// The start time; 0 for a thread, so that threads sort first.
    #[must_use]
    pub fn time(&self) -> u64 {
        match self {
            Record::Thread { .. } => 0,
            Record::Process { t, .. }
            | Record::Call { t, .. }
            | Record::Post { t, .. }
            | Record::Receive { t, .. }
            | Record::Poll { t, .. }
            | Record::Arm { t, .. }
            | Record::Taken { t, .. }
            | Record::Cq { t, .. }
            | Record::CqDestroyed { t, .. }
            | Record::QueuePair { t, .. }
            | Record::QueuePairDestroyed { t, .. }
            | Record::Modified { t, .. }
            | Record::Completion { t, .. }
            | Record::Event { t, .. }
            | Record::Packet { t, .. }
            | Record::Choice { t, .. }
            | Record::Dropped { t, .. }
            | Record::End { t } => *t,
        }
    }
}
