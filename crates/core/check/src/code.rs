//! The kinds of mistakes, each with a stable name.
use std::fmt;

macro_rules! codes {
    ($(#[doc = $doc:literal] $id:ident = $name:literal;)*) => {
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
    SendQueueOverposted = "send-queue-overposted";
    /// The send queue is full of unsignaled requests, whose places no completion will ever free.
    SendQueueNeverFreed = "send-queue-never-freed";
    /// A chain is posted again of which a part was taken.
    ChainPostedAgain = "chain-posted-again";
    /// A post is refused for what the request says.
    PostRefused = "post-refused";
    /// Requests are posted again and again on a queue pair in the error state.
    PostedInError = "posted-in-error";
    /// A request that was refused is never posted again.
    RequestLost = "request-lost";
    /// More may complete than the completion queue has entries.
    CqTooSmall = "cq-too-small";
    /// An object is destroyed with events that are not acknowledged.
    EventNotAcknowledged = "event-not-acknowledged";
    /// More events are acknowledged than were taken.
    EventOveracknowledged = "event-overacknowledged";
    /// Events are left where an edge-triggered epoll tells of new ones alone.
    EdgeNotDrained = "edge-not-drained";
    /// A buffer has other bytes at the completion than it had when it was posted.
    BufferChanged = "buffer-changed";
    /// A region is deregistered while a posted request uses it.
    RegionInUse = "region-in-use";
    /// A request names bytes that lie outside of the region of its key.
    OutsideRegion = "outside-region";
    /// An element has the length 0 and a key of no region.
    ZeroLengthElement = "zero-length-element";
    /// A queue pair is given the longest RNR timer, whose code is 0.
    LongestRnrTimer = "longest-rnr-timer";
    /// A value is wider than its field and loses its high bits.
    ValueCut = "value-cut";
    /// An object is left at the end of the process, though later ones of its kind were destroyed.
    LeftAtExit = "left-at-exit";
    /// A process forks with registered memory that the child shares.
    RegisteredMemoryForked = "registered-memory-forked";
    /// Bytes that a READ or an atomic will write are used by a later request without a fence.
    ReadNotFenced = "read-not-fenced";
    /// A thread takes an event or arms, and the thread that polls is not woken.
    PollerNotWoken = "poller-not-woken";
    /// Completions came before the arm, and the program sleeps.
    LostWakeUp = "lost-wake-up";
    /// A program sleeps for events of a completion queue that it does not arm again.
    NeverArmedAgain = "never-armed-again";
    /// A program sleeps for events of a completion queue that was never armed.
    NeverArmed = "never-armed";
    /// A program sleeps for solicited completions, and none of its completions is solicited.
    ArmedForSolicited = "armed-for-solicited";
    /// A message finds no receive, and the program posts none.
    NoReceive = "no-receive";
    /// A message is longer than its receive and was dropped without a completion.
    ReceiveTooShort = "receive-too-short";
    /// A queue pair was reset with posted requests, which never complete.
    RequestsDiscarded = "requests-discarded";
    /// The messages of a queue pair find no receive at the peer.
    PeerHasNoReceive = "peer-has-no-receive";
    /// A queue pair has failed.
    QueuePairFailed = "queue-pair-failed";
    /// A program fails after failed completions whose undefined fields have random values.
    UndefinedFields = "undefined-fields";
    /// The program fails after a call that failed.
    CallFailed = "call-failed";
    /// The program fails after a completion that failed.
    CompletionFailed = "completion-failed";
    /// A thread runs without end and makes no call.
    Spins = "spins";
    /// An event lies in a channel, and the program waits for something else.
    EventUnread = "event-unread";
    /// Completions lie in a queue, and the program waits for something else.
    NotPolled = "not-polled";
    /// The program fails with a signal.
    Crashed = "crashed";
    /// A queue pair of a waiting program was never connected.
    NotConnected = "not-connected";
    /// A message was polled before the program had read that its connection is established.
    MessageBeforeEstablished = "message-before-established";
    /// The program ends itself with a failure.
    Ended = "ended";
    /// What each thread of a program waits for.
    Waits = "waits";
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
    /// How much a report of this kind says about a failure.
    #[must_use]
    pub const fn weight(self) -> Weight {
        match self {
            Code::SendQueueNeverFreed
            | Code::ChainPostedAgain
            | Code::PostRefused
            | Code::PostedInError
            | Code::RequestLost
            | Code::EventNotAcknowledged
            | Code::EventOveracknowledged
            | Code::EdgeNotDrained
            | Code::BufferChanged
            | Code::RegionInUse
            | Code::OutsideRegion
            | Code::ReadNotFenced => Weight::Mistake,
            Code::SendQueueOverposted
            | Code::PollerNotWoken
            | Code::LostWakeUp
            | Code::NeverArmedAgain
            | Code::NeverArmed
            | Code::ArmedForSolicited
            | Code::NoReceive
            | Code::ReceiveTooShort
            | Code::RequestsDiscarded
            | Code::CallFailed
            | Code::QueuePairFailed => Weight::Cause,
            Code::UndefinedFields
            | Code::PeerHasNoReceive
            | Code::CompletionFailed
            | Code::EventUnread
            | Code::NotPolled
            | Code::Crashed
            | Code::Spins
            | Code::NotConnected
            | Code::MessageBeforeEstablished
            | Code::Ended
            | Code::Waits => Weight::State,
            Code::CqTooSmall
            | Code::ZeroLengthElement
            | Code::LongestRnrTimer
            | Code::ValueCut
            | Code::LeftAtExit
            | Code::RegisteredMemoryForked => Weight::Risk,
        }
    }

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
