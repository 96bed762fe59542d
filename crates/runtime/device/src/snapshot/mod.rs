//! What a process does, as values that cross to another process of the user: `adverb top` and
//! `adverb stat` show them.
//!
//! A process gives its state in pages ([`adverb_local::Asker`]). The values are those of the moment
//! of the question. Counters count from the beginning of their queue pair or process.
mod format;
#[cfg(all(test, not(loom)))]
mod tests;

pub use format::{Bad, PAGE};

/// A question for a page that begins here asks for the objects of the process. Smaller numbers are
/// those of queue pairs.
pub const OBJECTS: u32 = 1 << 31;

use adverb_engine::Gid;

/// A page: the process, and some of its queue pairs with their completion queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Where the next page begins. `None`: this is the last page.
    pub next: Option<u32>,
    /// The process.
    pub process: Process,
    /// The counters of the process that are not zero, on the first page.
    pub counters: Vec<(String, u64)>,
    /// The completion queues of the page's queue pairs, each once.
    pub queues: Vec<Queue>,
    /// Queue pairs in the order of their numbers.
    pub queue_pairs: Vec<Pair>,
    /// Objects and counters of a page of [`OBJECTS`]: the name of the device and an
    /// [`ObjectLine`](adverb_nldev::ObjectLine).
    pub objects: Vec<String>,
}

/// A process with an open device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// The process id in the process's own PID namespace.
    pub pid: u32,
    /// The first slot of the process: no other process of the user in the network namespace has it.
    pub slot: u16,
    /// The time of the page by a clock of the process, in nanoseconds.
    pub at: u64,
    /// The name of the program (`/proc/PID/comm`).
    pub name: String,
    /// The version of Adverb.
    pub version: String,
    /// Open contexts.
    pub contexts: u32,
    /// Queue pairs of the process.
    pub queue_pairs: u32,
}

/// What carries the packets of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketPath {
    /// UDP port 4791, or no connection yet.
    #[default]
    Network,
    /// Shared memory of a process of this host.
    Memory,
    /// Ethernet frames.
    Frames,
}

/// A queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// The queue pair number.
    pub number: u32,
    /// The transport; see [`Pair::transport`].
    pub qp_type: u8,
    /// The state; see [`Pair::state_name`].
    pub state: u8,
    /// The queue pair was locked for too long: the fields below are unknown.
    pub busy: bool,
    /// The queue pair sends again after a timeout.
    pub retrying: bool,
    /// The receives are those of a shared receive queue.
    pub shared: bool,
    /// What carries the packets.
    pub way: PacketPath,
    /// The process id of the peer, if shared memory carries the packets; 0 otherwise.
    pub peer_pid: u32,
    /// The peer's queue pair; 0 without a connection.
    pub dest: u32,
    /// The own address, and the peer's.
    pub own_gid: Gid,
    /// The peer's address.
    pub peer_gid: Gid,
    /// The completion queue for sends; 0 for none.
    pub send_cq: u32,
    /// The completion queue for receives; 0 for none.
    pub recv_cq: u32,
    /// The size of the send queue.
    pub depth: u32,
    /// Send requests that are committed and not done.
    pub open: u32,
    /// Receives that wait for a message.
    pub receives: u32,
    /// Send requests committed.
    pub posted: u64,
    /// Bytes of the messages that the program posted, without READs.
    pub sent_bytes: u64,
    /// Bytes of the READs that the program posted.
    pub read_bytes: u64,
    /// Requests of the peer that were executed here. One-sided requests that a peer on this host
    /// performs by itself do not count.
    pub received: u64,
    /// Bytes of these requests.
    pub received_bytes: u64,
    /// Request packets sent again.
    pub retransmitted: u64,
    /// Local ACK timeouts.
    pub timeouts: u64,
    /// RNR NAKs received.
    pub rnr_naks: u64,
    /// Sequence-error NAKs received.
    pub seq_naks: u64,
    /// Packets dropped, for all reasons.
    pub drops: u64,
    /// RNR NAKs sent: messages of the peer that found no receive.
    pub refused: u64,
    /// Why the queue pair is in the state ERR or SQE; empty if the program moved it there.
    pub error: String,
    /// A message that was dropped because its receive is too short, in the words of the log; empty
    /// for none.
    pub unfit: String,
    /// The number of the shared receive queue; of an XRC target, of the queue that last had no
    /// receive for a message. 0 for none.
    pub srq: u32,
    /// The key of no region for which the queue pair failed; 0 for none.
    pub unknown_key: u32,
}

impl Pair {
    const TRANSPORTS: [&str; 6] = ["RC", "UC", "UD", "XRC_SEND", "XRC_RECV", "RAW"];
    const STATES: [&str; 7] = ["RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"];

    /// The name of the transport.
    #[must_use]
    pub fn transport(&self) -> &'static str {
        Pair::TRANSPORTS.get(usize::from(self.qp_type)).copied().unwrap_or("?")
    }

    /// The name of the state.
    #[must_use]
    pub fn state_name(&self) -> &'static str {
        Pair::STATES.get(usize::from(self.state)).copied().unwrap_or("?")
    }
}

/// The pending arm of a completion queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Arm {
    /// None.
    #[default]
    None,
    /// For the next completion.
    Next,
    /// For the next solicited or failed completion.
    Solicited,
    /// For the next failed completion.
    Errors,
}

/// A completion queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// The number in the process.
    pub number: u32,
    /// The capacity.
    pub capacity: u32,
    /// Completions in the queue.
    pub waiting: u32,
    /// Completions for which no event will come, unless an event is unread.
    pub unannounced: u32,
    /// Events that the program has not read.
    pub unread: u32,
    /// The pending arm.
    pub arm: Arm,
    /// The queue has a completion channel.
    pub channel: bool,
    /// The queue overflowed.
    pub broken: bool,
    /// Arms so far.
    pub arms: u64,
    /// Time in milliseconds without a poll, an arm or an event taken, as far as known.
    pub silent_ms: u64,
    /// The thread that waits for an event, with its call; empty for none or unknown.
    pub waiter: String,
    /// A lost wake-up, in the words of the log; empty for none.
    pub stuck: String,
    /// The thread that polled last (`gettid`), if another thread has taken an event or armed since;
    /// 0 otherwise.
    pub poller: u32,
}
