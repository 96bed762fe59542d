//! The state of a process at a failure or in a hang, as values for [`crate::Ledger::examine`].
use crate::CodeAddress;

/// Why the state of a process is examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The process makes no progress any more, or a user asks what it waits for.
    Stuck,
    /// The process ends with this exit status, which is not 0.
    Status(i32),
    /// A signal ends the process.
    Signal(i32),
}

impl Occasion {
    /// The program has not failed: the program waits, or a user or supervisor ends the program.
    pub(crate) fn is_no_failure(self) -> bool {
        /// SIGHUP, SIGINT, and SIGTERM.
        const OF_USERS: [i32; 3] = [1, 2, 15];
        match self {
            Occasion::Stuck => true,
            Occasion::Signal(signal) => OF_USERS.contains(&signal),
            Occasion::Status(_) => false,
        }
    }
}

/// The state of a process, from the device and from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scene {
    /// Why the process is examined.
    pub occasion: Occasion,
    /// `errno` of the ending thread is EINTR.
    pub interrupted: bool,
    /// Completion queues.
    pub queues: Vec<QueueScene>,
    /// Queue pairs.
    pub pairs: Vec<PairScene>,
    /// The numbers of completion queues that the program polls right now.
    pub polling: Vec<u32>,
    /// The program's threads, without the device's own threads.
    pub threads: Vec<ThreadScene>,
}

/// A pending arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Armed {
    /// None.
    #[default]
    No,
    /// For the next completion.
    Next,
    /// For the next solicited or failed completion.
    Solicited,
}

/// A completion queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueScene {
    /// The number of the queue in the process.
    pub number: u32,
    /// Completions in the queue.
    pub waiting: u32,
    /// Completions in the queue for which no event will come, unless an event is unread.
    pub unannounced: u32,
    /// Events in the channel that the program has not read.
    pub unread: u32,
    /// The pending arm.
    pub armed: Armed,
    /// The number of arms so far.
    pub arms: u64,
    /// The queue has a completion channel.
    pub channel: bool,
    /// The queue overflowed.
    pub overflowed: bool,
    /// The thread that waits for an event, with its call; empty for none.
    pub waiter: String,
    /// A lost wake-up in the words of the log; empty for none.
    pub lost: String,
    /// The thread that polled last, if another thread has taken an event or armed since; 0 for
    /// none.
    pub poller: i32,
}

/// A queue pair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairScene {
    /// The queue pair number.
    pub number: u32,
    /// The state: `RESET`, `INIT`, `RTR`, `RTS`, `SQD`, `SQE`, `ERR`.
    pub state: &'static str,
    /// Why the queue pair failed; empty if the program moved it to this state, or if it works.
    pub error: String,
    /// The process id of the peer on this host; 0 if unknown.
    pub peer: u32,
    /// The peer's queue pair; 0 without a connection.
    pub dest: u32,
    /// Send requests that are posted and not done.
    pub open: u32,
    /// Receives that wait for a message; those of the shared receive queue if there is one.
    pub receives: u32,
    /// The number of the shared receive queue; of an XRC target, of the queue that last had no
    /// receive for a message. 0 for none.
    pub srq: u32,
    /// The CQ of the send queue, and of the receive queue; 0 for none.
    pub send_cq: u32,
    /// See `send_cq`.
    pub recv_cq: u32,
    /// How often the peer had no receive for a message of this queue pair.
    pub rnr_naks: u64,
    /// How often this queue pair had no receive for a message of the peer.
    pub refused: u64,
    /// A message that was dropped because its receive is too short, in words; empty for none.
    pub unfit: String,
    /// The key of no region for which the queue pair failed; 0 for none.
    pub unknown_key: u32,
}

impl PairScene {
    /// The queue pair is in the error state, for another reason than a call of the program.
    pub(crate) fn has_failed(&self) -> bool {
        !self.error.is_empty() && matches!(self.state, "ERR" | "SQE")
    }

    /// Are the queue pairs the two ends of a connection?
    pub(crate) fn joins(&self, other: &PairScene) -> bool {
        self.number != other.number && (self.dest, other.dest) == (other.number, self.number)
    }
}

/// A thread of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadScene {
    /// The number of the thread (`gettid`).
    pub id: i32,
    /// The name of the thread.
    pub name: String,
    /// The system call in which the thread sleeps, with its descriptor, such as `epoll_wait(5)`.
    /// Empty for a thread that runs.
    pub call: String,
    /// The time limit of the call in milliseconds; `None` for no limit.
    pub limit_ms: Option<u64>,
    /// The signal that ends the process came to this thread.
    pub signalled: bool,
    /// The place in the program of the call, or of the running code; 0 if unknown.
    pub place: CodeAddress,
}
