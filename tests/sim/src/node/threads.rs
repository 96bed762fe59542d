//! What is known of the threads of a node.
use adverb_engine::Time;

/// The background thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Background {
    Awake,
    Asleep { until: Option<Time>, at_sockets: bool, waking: bool, number: u64 },
}

/// What the consumer does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Polls without arming, so often.
    Spin(u32),
    /// Arms a queue.
    Arm(usize),
    /// Polls a queue until it is empty.
    Drain(usize),
    /// Sleeps on the descriptor, as by `epoll`.
    Sleep,
    /// Takes an event that makes the descriptor readable.
    Take,
    /// Is in a get-event call, and has slept in it or not.
    Call(bool),
    /// Acknowledges what it has taken.
    Acknowledge,
}

/// The thread that takes completions.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) next: Next,
    /// It sleeps in get-event calls.
    pub(super) calls: bool,
    /// It sleeps, and is not being woken; by packets, too, in a call.
    pub(super) asleep: bool,
    /// Number of its sleep.
    pub(super) number: u64,
    /// It has armed for solicited completions alone since it looked at all others.
    pub(super) solicited: bool,
    /// Sleeps until it does something else.
    pub(super) rounds: u64,
}

impl Consumer {
    pub(super) fn new() -> Consumer {
        Consumer { next: Next::Spin(3), calls: false, asleep: false, number: 0, solicited: false, rounds: 0 }
    }
}
