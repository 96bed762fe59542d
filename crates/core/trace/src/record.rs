//! What a part consists of.
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The name of a call.
pub type Name = Cow<'static, str>;

/// A line of a part. Times are nanoseconds of the monotonic clock, which all processes of a machine
/// share: `t` is when it began, `d` how long it took, `tid` the thread.
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
    /// Comes before what a thread does.
    Thread {
        tid: i32,
        name: String,
    },
    /// A call that is none of those below: its arguments as words, and what it returned.
    Call {
        t: u64,
        d: u64,
        tid: i32,
        call: Name,
        args: [u64; 6],
        result: u64,
        errno: i32,
    },
    /// Requests were posted to a send queue; `taken` of them are in it.
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
    /// Completions were polled; or so many polls in a row found nothing.
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
    /// An event was waited for, and taken of a CQ.
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
    CqGone {
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
    QueuePairGone {
        t: u64,
        qp: u32,
    },
    /// Attributes of a queue pair that were set.
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
        /// Of a datagram: who sent it.
        from: Option<u32>,
        /// Of an acknowledgement.
        syndrome: Option<u8>,
        bytes: usize,
        note: Name,
    },
    /// So many records found no room before this.
    Dropped {
        t: u64,
        records: u64,
    },
    /// The process ends in order.
    End {
        t: u64,
    },
}

/// A request as it was posted; `opcode` as in `ibv_send_wr`, of a receive 128.
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
    /// Was a receive completed? `IBV_WC_RECV` is a bit of the opcodes of receives.
    #[must_use]
    pub fn is_receive(&self) -> bool {
        self.opcode & 128 != 0
    }
}

impl Record {
    /// When it began; a thread is there from the beginning.
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
            | Record::CqGone { t, .. }
            | Record::QueuePair { t, .. }
            | Record::QueuePairGone { t, .. }
            | Record::Modified { t, .. }
            | Record::Completion { t, .. }
            | Record::Event { t, .. }
            | Record::Packet { t, .. }
            | Record::Dropped { t, .. }
            | Record::End { t } => *t,
        }
    }
}
