//! The state of a node's threads.
use adverb_engine::Time;

/// The background thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Background {
    Awake,
    Asleep { until: Option<Time>, at_sockets: bool, waking: bool, number: u64 },
}

/// The next step of the consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Polls this many times without arming.
    Spin(u32),
    /// Arms a queue.
    Arm(usize),
    /// Polls a queue until it is empty.
    Drain(usize),
    /// Sleeps on the descriptor, as with `epoll`.
    Sleep,
    /// Takes an event from the readable descriptor.
    Take,
    /// Is in a get-event call; `true` if the consumer has slept in the call.
    Call(bool),
    /// Acknowledges the events taken so far.
    Acknowledge,
}

/// The thread that polls for completions.
#[derive(Debug)]
pub(super) struct Consumer {
    pub(super) next: Next,
    /// The consumer sleeps in get-event calls.
    pub(super) calls: bool,
    /// The consumer sleeps, and no wake-up is under way. In a get-event call packets wake the
    /// consumer, too.
    pub(super) asleep: bool,
    /// Number of the present sleep.
    pub(super) number: u64,
    /// The consumer has armed for solicited completions alone since it last polled for the others.
    pub(super) solicited: bool,
    /// Number of sleeps until the consumer does something else.
    pub(super) rounds: u64,
}

impl Consumer {
    pub(super) fn new() -> Consumer {
        Consumer {
            next: Next::Spin(3),
            calls: false,
            asleep: false,
            number: 0,
            solicited: false,
            rounds: 0,
        }
    }
}
