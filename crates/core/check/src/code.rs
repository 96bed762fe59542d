//! The kinds of mistakes, each with a stable name.
use std::fmt;

macro_rules! codes {
    ($(#[doc = $doc:literal] $id:ident = $name:literal, $weight:ident;)*) => {
        /// A kind of mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $doc] $id),* }

        impl Code {
            /// All kinds.
            pub const ALL: &[Code] = &[$(Code::$id),*];

            /// The name in reports and in files of suppressions. It never changes.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Code::$id => $name),* }
            }

            /// How much a report of this kind says about a failure.
            #[must_use]
            pub const fn weight(self) -> Weight {
                match self { $(Code::$id => Weight::$weight),* }
            }

            /// The meaning of the kind, as a sentence without a full stop.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$id => $doc),* }.trim().trim_end_matches('.')
            }
        }
    };
}

codes! {
    /// A post finds the send queue full, and the program does not post again.
    SendQueueOverposted = "send-queue-overposted", Cause;
    /// The send queue is full of unsignaled requests, whose places no completion will ever free.
    SendQueueNeverFreed = "send-queue-never-freed", Mistake;
    /// A chain is posted again of which a part was taken.
    ChainPostedAgain = "chain-posted-again", Mistake;
    /// A post is refused for what the request says.
    PostRefused = "post-refused", Mistake;
    /// Requests are posted again and again on a queue pair in the error state.
    PostedInError = "posted-in-error", Mistake;
    /// A request that was refused is never posted again.
    RequestLost = "request-lost", Mistake;
    /// More may complete than the completion queue has entries.
    CqTooSmall = "cq-too-small", Risk;
    /// An object is destroyed with events that are not acknowledged.
    EventNotAcknowledged = "event-not-acknowledged", Mistake;
    /// More events are acknowledged than were taken.
    EventOveracknowledged = "event-overacknowledged", Mistake;
    /// Events are left where an edge-triggered epoll tells of new ones alone.
    EdgeNotDrained = "edge-not-drained", Mistake;
    /// A buffer has other bytes at the completion than it had when it was posted.
    BufferChanged = "buffer-changed", Mistake;
    /// A region is deregistered while a posted request uses it.
    RegionInUse = "region-in-use", Mistake;
    /// A request names bytes that lie outside of the region of its key.
    OutsideRegion = "outside-region", Mistake;
    /// An element has the length 0 and a key of no region.
    ZeroLengthElement = "zero-length-element", Risk;
    /// A queue pair is given the longest RNR timer, whose code is 0.
    LongestRnrTimer = "longest-rnr-timer", Risk;
    /// A value is wider than its field and loses its high bits.
    ValueCut = "value-cut", Risk;
    /// An object is left at the end of the process, though later ones of its kind were destroyed.
    LeftAtExit = "left-at-exit", Risk;
    /// A process forks with registered memory that the child shares.
    RegisteredMemoryForked = "registered-memory-forked", Risk;
    /// Bytes that a READ or an atomic will write are used by a later request without a fence.
    ReadNotFenced = "read-not-fenced", Mistake;
    /// A thread takes an event or arms, and the thread that polls is not woken.
    PollerNotWoken = "poller-not-woken", Cause;
    /// Completions came before the arm, and the program sleeps.
    LostWakeUp = "lost-wake-up", Cause;
    /// A program sleeps for events of a completion queue that it does not arm again.
    NeverArmedAgain = "never-armed-again", Cause;
    /// A program sleeps for events of a completion queue that was never armed.
    NeverArmed = "never-armed", Cause;
    /// A program sleeps for solicited completions, and none of its completions is solicited.
    ArmedForSolicited = "armed-for-solicited", Cause;
    /// A message finds no receive, and the program posts none.
    NoReceive = "no-receive", Cause;
    /// A message is longer than its receive and was dropped without a completion.
    ReceiveTooShort = "receive-too-short", Cause;
    /// A queue pair was reset with posted requests, which never complete.
    RequestsDiscarded = "requests-discarded", Cause;
    /// The messages of a queue pair find no receive at the peer.
    PeerHasNoReceive = "peer-has-no-receive", State;
    /// A queue pair has failed.
    QueuePairFailed = "queue-pair-failed", Cause;
    /// A program fails after failed completions whose undefined fields have random values.
    UndefinedFields = "undefined-fields", State;
    /// The program fails after a call that failed.
    CallFailed = "call-failed", Cause;
    /// The program fails after a completion that failed.
    CompletionFailed = "completion-failed", State;
    /// A thread runs without end and makes no call.
    Spins = "spins", State;
    /// An event lies in a channel, and the program waits for something else.
    EventUnread = "event-unread", State;
    /// Completions lie in a queue, and the program waits for something else.
    NotPolled = "not-polled", State;
    /// The program fails with a signal.
    Crashed = "crashed", State;
    /// A queue pair of a waiting program was never connected.
    NotConnected = "not-connected", State;
    /// A message was polled before the program had read that its connection is established.
    MessageBeforeEstablished = "message-before-established", State;
    /// The program ends itself with a failure.
    Ended = "ended", State;
    /// What each thread of a program waits for.
    Waits = "waits", State;
}

/// How much a report says about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// A mistake, whatever happens next.
    Mistake,
    /// The cause of a failure that has happened.
    Cause,
    /// A state that goes with a failure, and may be its effect.
    State,
    /// Something that may fail another time.
    Risk,
}

impl Code {
    /// Is the report about completions that no event announces to a thread?
    #[must_use]
    pub const fn is_of_a_wake_up(self) -> bool {
        matches!(
            self,
            Code::PollerNotWoken
                | Code::LostWakeUp
                | Code::NeverArmedAgain
                | Code::NeverArmed
                | Code::ArmedForSolicited
        )
    }

    /// The place of this kind among the causes of a failure; the most telling kind has the lowest.
    #[must_use]
    pub fn rank(self) -> (Weight, usize) {
        (self.weight(), Code::ALL.iter().position(|code| *code == self).unwrap_or(usize::MAX))
    }

    /// The code of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Code> {
        Code::ALL.iter().copied().find(|code| code.name() == name)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
