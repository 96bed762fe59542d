//! Choices of a device that deliberately tests its program.
//!
//! A device decides when a completion becomes visible, and the standards give it much freedom. A
//! [`Point`] is a moment at which the device may use this freedom: the n-th time a place in the
//! program's code makes a kind of call on an object. A [`Schedule`] defines the choice at each
//! point. It has explicit [`ChoiceEntry`]s and a random draw. The draw is a hash of seed, object,
//! place and count, so it does not depend on a clock or on threads. Schedules are text, which can
//! be stored in a file and replayed.
#![forbid(unsafe_code)]

mod plan;
mod schedule;
#[cfg(test)]
mod tests;

pub use plan::{Plan, RunPath};
pub use schedule::{Bad, Schedule};

use std::fmt;
use std::str::FromStr;

/// A kind of call of the program at which the device may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Call {
    /// `ibv_req_notify_cq`.
    Arm,
    /// A poll of an empty queue, the first after the queue was not empty.
    Poll,
    /// A poll of a failed completion.
    Error,
    /// `ibv_post_send`.
    Post,
    /// `ibv_get_cq_event`.
    Event,
    /// `ibv_post_recv`.
    Receive,
    /// `ibv_get_async_event`.
    Async,
    /// `rdma_get_cm_event`.
    Connection,
    /// `ibv_modify_qp` to the error state.
    Modify,
}

/// The device's behaviour at a point. The standards allow each of these choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Choice {
    /// The call takes effect only after everything in flight has arrived.
    Before,
    /// The call returns only after everything in flight has arrived.
    After,
    /// Later arrivals become visible late and all at once: when the program sleeps, or after a
    /// bounded time.
    Hold,
    /// Later arrivals become visible one completion per poll.
    Drip,
    /// The undefined fields of a failed completion get random values.
    Garbage,
    /// The send queue is full until completions are polled, as on a NIC, and these completions come
    /// late.
    Full,
    /// At `ibv_post_send`: the queue pair carries its requests out late, when the program sleeps or
    /// after a bounded time. Other queue pairs continue, and of several late queue pairs the last
    /// begins first. At `ibv_modify_qp`: flushed completions come late.
    Late,
    /// The last cache line of an RDMA WRITE is placed first, and the rest of the message later.
    TailFirst,
    /// The data of RDMA READs is taken late, after later requests without a fence.
    ReadLate,
    /// The call returns EINTR, as after a signal.
    Interrupt,
}

impl Call {
    /// All kinds.
    pub const ALL: [Call; 9] = [
        Call::Arm,
        Call::Poll,
        Call::Error,
        Call::Post,
        Call::Event,
        Call::Receive,
        Call::Async,
        Call::Connection,
        Call::Modify,
    ];

    /// The possible choices at this kind of call; choices that find most mistakes come first.
    #[must_use]
    pub const fn choices(self) -> &'static [Choice] {
        match self {
            Call::Arm => &[Choice::Before, Choice::After],
            Call::Poll => &[Choice::After, Choice::Hold, Choice::Drip],
            Call::Error => &[Choice::Garbage],
            Call::Post => {
                &[Choice::Full, Choice::After, Choice::Late, Choice::TailFirst, Choice::ReadLate]
            }
            Call::Event => &[Choice::Before, Choice::After, Choice::Interrupt],
            Call::Async | Call::Connection => &[Choice::Before, Choice::After],
            Call::Receive => &[Choice::Before],
            Call::Modify => &[Choice::Late],
        }
    }

    /// The name of the call in a schedule.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Call::Arm => "arm",
            Call::Poll => "poll",
            Call::Error => "error",
            Call::Post => "post",
            Call::Event => "event",
            Call::Receive => "receive",
            Call::Async => "async",
            Call::Connection => "connection",
            Call::Modify => "modify",
        }
    }
}

impl Choice {
    /// All choices.
    pub const ALL: [Choice; 10] = [
        Choice::Before,
        Choice::After,
        Choice::Hold,
        Choice::Drip,
        Choice::Garbage,
        Choice::Full,
        Choice::Late,
        Choice::TailFirst,
        Choice::ReadLate,
        Choice::Interrupt,
    ];

    /// The name of the choice in a schedule.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Choice::Before => "before",
            Choice::After => "after",
            Choice::Hold => "hold",
            Choice::Drip => "drip",
            Choice::Garbage => "garbage",
            Choice::Full => "full",
            Choice::Late => "late",
            Choice::TailFirst => "tail-first",
            Choice::ReadLate => "read-late",
            Choice::Interrupt => "interrupt",
        }
    }

    /// The effect of the choice at a call, in words.
    #[must_use]
    pub const fn words(self, call: Call) -> &'static str {
        match (call, self) {
            (Call::Arm, Choice::Before) => {
                "everything on its way came between the last poll and this arm, and nothing after it"
            }
            (Call::Arm, _) => "everything on its way came between this arm and the poll after it",
            (Call::Poll, Choice::Hold) => {
                "completions after this empty poll came late, all at once, when the program slept"
            }
            (Call::Poll, Choice::Drip) => "completions after this empty poll came one at a time",
            (Call::Poll, _) => {
                "everything on its way came just after this poll had found the queue empty"
            }
            (Call::Error, _) => {
                "fields of a failed completion that are undefined had random values"
            }
            (Call::Post, Choice::Full) => {
                "places in the send queue were free only when completions were polled, and these came late"
            }
            (Call::Post, Choice::Late) => {
                "this queue pair carried out its requests late, after those of other queue pairs"
            }
            (Call::Post, Choice::TailFirst) => {
                "the last bytes of this RDMA WRITE were placed first, and the rest 2 ms later"
            }
            (Call::Post, Choice::ReadLate) => {
                "the data of this RDMA READ was taken late, after later requests without a fence"
            }
            (Call::Post, _) => {
                "the request, and what it led to, was done before this call returned"
            }
            (Call::Event, Choice::Before) => {
                "several events were queued before this call read the first"
            }
            (Call::Event, Choice::Interrupt) => {
                "this call waited for a signal of the program, and returned EINTR"
            }
            (Call::Event, _) => "everything on its way came just after this event was read",
            (Call::Receive, _) => "everything on its way came before this receive was posted",
            (Call::Modify, _) => "the flushed completions of this queue pair came late",
            (Call::Async, Choice::Before) => {
                "several asynchronous events were queued before this call read the first"
            }
            (Call::Async, _) => {
                "everything on its way came just after this asynchronous event was read"
            }
            (Call::Connection, Choice::Before) => {
                "everything on its way came before this event of a connection was read"
            }
            (Call::Connection, _) => {
                "everything on its way came just after this event of a connection was read"
            }
        }
    }
}

impl Choice {
    /// The rule of verbs that a program breaks which fails with this choice at a call.
    #[must_use]
    pub const fn rule(self, call: Call) -> &'static str {
        match (call, self) {
            (Call::Arm, Choice::Before) => {
                "completions that come before the arm make no event: arm, then poll until empty"
            }
            (Call::Arm, _) => {
                "an event may find its queue empty, and a poll may find completions before their \
                 event is read"
            }
            (Call::Poll, Choice::Hold) => {
                "a completion may come at any later time, after those of other queues, and many at \
                 once; only its own completion proves that a request is done"
            }
            (Call::Poll, Choice::Drip) => "a poll may find one completion of many",
            (Call::Poll, _) => {
                "completions may come right after a poll that found none: arm, and poll again \
                 before the sleep"
            }
            (Call::Error, _) => "a failed completion has only wr_id, status, qp_num and vendor_err",
            (Call::Post, Choice::Full) => {
                "a place in the send queue is free after a poll of its completion; a refused \
                 request is not posted"
            }
            (Call::Post, Choice::Late) => {
                "requests are carried out in order within one queue pair only, and the device \
                 uses their buffers until their completions"
            }
            (Call::Post, Choice::TailFirst) => {
                "the bytes of one RDMA WRITE may arrive in any order: wait for a completion, or for \
                 a later message"
            }
            (Call::Post, Choice::ReadLate) => {
                "a later SEND or WRITE may be carried out before the data of an RDMA READ is \
                 taken: set IBV_SEND_FENCE, or wait for the READ's completion"
            }
            (Call::Post, _) => {
                "a request may be done, and its answer may be here, before ibv_post_send returns"
            }
            (Call::Event, Choice::Interrupt) => {
                "a signal may interrupt the call (EINTR): make the call again"
            }
            (Call::Event | Call::Async, _) => {
                "several events may wait, each of another object: read and acknowledge each of them"
            }
            (Call::Receive, _) => {
                "a message may come before its receive is posted: post receives first"
            }
            (Call::Modify, _) => {
                "flushed completions may come at any time after the move to ERR: count them, and \
                 look at qp_num and status of each completion"
            }
            (Call::Connection, _) => {
                "the events of a connection and its messages and completions have no common order"
            }
        }
    }
}

/// A place in the program's code that makes a kind of call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Site {
    /// The kind of call.
    pub call: Call,
    /// The loaded file and the offset of the code in it, which are the same in every run.
    pub place: String,
}

/// A moment at which the device may choose.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Point {
    /// The place and kind of call.
    pub site: Site,
    /// The object, by the order of creation in its process, from 1.
    pub object: u64,
    /// Ordinal number of the call for this site and object, from 1.
    pub count: u64,
}

/// A single number, or any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Which {
    /// Any number.
    Any,
    /// This number.
    Nth(u64),
}

impl Which {
    /// Does this include `n`?
    #[must_use]
    pub fn has(self, n: u64) -> bool {
        self == Which::Any || self == Which::Nth(n)
    }
}

/// A choice for some points.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChoiceEntry {
    /// The place and kind of call.
    pub site: Site,
    /// The objects.
    pub object: Which,
    /// The ordinal numbers of the call.
    pub count: Which,
    /// The choice.
    pub choice: Choice,
}

impl ChoiceEntry {
    /// An entry for a single point.
    #[must_use]
    pub fn at(point: Point, choice: Choice) -> Self {
        let Point { site, object, count } = point;
        ChoiceEntry { site, object: Which::Nth(object), count: Which::Nth(count), choice }
    }

    fn has(&self, point: &Point) -> bool {
        self.site == point.site && self.object.has(point.object) && self.count.has(point.count)
    }
}

/// A pseudo-random number that depends only on the seed and the point.
#[must_use]
pub fn draw(seed: u64, point: &Point) -> u64 {
    let place = point.site.place.bytes().fold(point.site.call as u64, |h, b| mix(h ^ u64::from(b)));
    mix(mix(mix(seed ^ place) ^ point.object) ^ point.count)
}

/// One step of splitmix64 with its finaliser: similar arguments give unrelated results.
#[must_use]
pub fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Which::Any => f.write_str("*"),
            Which::Nth(n) => write!(f, "{n}"),
        }
    }
}

impl FromStr for Which {
    type Err = Bad;
    fn from_str(text: &str) -> Result<Self, Bad> {
        match text {
            "*" => Ok(Which::Any),
            n => n.parse().map(Which::Nth).map_err(|_| Bad::new(text, "a number or * is expected")),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@", self.call.name())?;
        // File names may contain spaces.
        for c in self.place.chars() {
            match c {
                '%' | ' ' | '\t' | '\n' | '\r' => write!(f, "%{:02x}", c as u32)?,
                c if c.is_whitespace() => write!(f, "_")?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Site {
    type Err = Bad;
    fn from_str(text: &str) -> Result<Self, Bad> {
        let (call, place) =
            text.split_once('@').ok_or_else(|| Bad::new(text, "CALL@PLACE is expected"))?;
        let call = Call::ALL.into_iter().find(|c| c.name() == call);
        let call = call.ok_or_else(|| Bad::new(text, "there is no such kind of call"))?;
        let mut parts = place.split('%');
        let mut place = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let code = part.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok());
            let code = code
                .filter(u8::is_ascii)
                .ok_or_else(|| Bad::new(text, "two digits stand behind %"))?;
            place.push(code.into());
            place.push_str(&part[2..]);
        }
        Ok(Site { call, place })
    }
}

impl fmt::Display for ChoiceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} object {} count {} {}",
            self.site,
            self.object,
            self.count,
            self.choice.name()
        )
    }
}

impl FromStr for ChoiceEntry {
    type Err = Bad;
    fn from_str(text: &str) -> Result<Self, Bad> {
        let words: Vec<_> = text.split_whitespace().collect();
        let [site, "object", object, "count", count, choice] = words[..] else {
            return Err(Bad::new(text, "CALL@PLACE object N count N CHOICE is expected"));
        };
        let site: Site = site.parse()?;
        let choices = site.call.choices();
        let choice = choices.iter().copied().find(|c| c.name() == choice);
        let choice = choice.ok_or_else(|| Bad::new(text, "no such choice at this call"))?;
        Ok(ChoiceEntry { site, object: object.parse()?, count: count.parse()?, choice })
    }
}
