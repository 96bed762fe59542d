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
    /// A program fails after failed completions whose undefined fields have random values.
    UndefinedFields = "undefined-fields";
    /// An object is left at the end of the process, though later ones of its kind were destroyed.
    LeftAtExit = "left-at-exit";
    /// A process forks with registered memory that the child shares.
    RegisteredMemoryForked = "registered-memory-forked";
}

impl Code {
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
