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
mod words;

pub use plan::{Plan, RunPath};
pub use schedule::{Bad, Schedule};

use std::fmt;
use std::str::FromStr;

/// An enumeration whose variants have names in a schedule.
macro_rules! named {
    ($(#[$about:meta])* pub enum $enum:ident {
        $($(#[$doc:meta])* $variant:ident = $name:literal,)+
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $enum {
            $($(#[$doc])* $variant,)+
        }

        impl $enum {
            /// All of them.
            pub const ALL: [$enum; [$($name),+].len()] = [$($enum::$variant),+];

            /// The name in a schedule.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($enum::$variant => $name,)+
                }
            }

            fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}

named! {
    /// A kind of call of the program at which the device may choose.
    pub enum Call {
        /// `ibv_req_notify_cq`.
        Arm = "arm",
        /// A poll of an empty queue, the first after the queue was not empty.
        Poll = "poll",
        /// A poll of a failed completion.
        Error = "error",
        /// `ibv_post_send`.
        Post = "post",
        /// `ibv_get_cq_event`.
        Event = "event",
        /// `ibv_post_recv`.
        Receive = "receive",
        /// `ibv_get_async_event`.
        Async = "async",
        /// `rdma_get_cm_event`.
        Connection = "connection",
        /// `ibv_modify_qp` to the error state.
        Modify = "modify",
        /// A poll of a message without immediate data.
        Message = "message",
        /// A registration of memory, as `ibv_reg_mr`.
        Register = "register",
        /// `rdma_ack_cm_event`.
        Acknowledge = "acknowledge",
        /// `ibv_post_send` to a queue pair without acknowledgements (UC, UD).
        Unreliable = "unreliable",
        /// `ibv_post_send` to a queue pair whose sends and receives complete in one queue.
        Shared = "shared",
    }
}

named! {
    /// The device's behaviour at a point. The standards allow each of these choices.
    pub enum Choice {
        /// The call takes effect only after everything in flight has arrived.
        Before = "before",
        /// The call returns only after everything in flight has arrived.
        After = "after",
        /// Later arrivals become visible late and all at once: when the program sleeps, or after a
        /// bounded time.
        Hold = "hold",
        /// Later arrivals become visible one completion per poll.
        Drip = "drip",
        /// What is undefined gets random values: fields of a failed completion, `imm_data` of a
        /// message without immediate data, an event after its acknowledgement.
        Garbage = "garbage",
        /// The send queue is full until completions are polled, as on a NIC, and these completions
        /// come late.
        Full = "full",
        /// At `ibv_post_send`: the queue pair carries its requests out late, when the program
        /// sleeps or after a bounded time. Other queue pairs continue, and of several late queue
        /// pairs the last begins first. At `ibv_modify_qp`: flushed completions come late.
        Late = "late",
        /// The last cache line of an RDMA WRITE or READ is placed first, and the rest of the
        /// message later.
        TailFirst = "tail-first",
        /// The data of RDMA READs is taken late, after later requests without a fence.
        ReadLate = "read-late",
        /// The call returns EINTR, as after a signal.
        Interrupt = "interrupt",
        /// The call fails with ENOMEM.
        Refuse = "refuse",
        /// The message is lost.
        Lose = "lose",
        /// Completions of sends become visible after the next completion of a receive.
        ReceiveFirst = "receive-first",
    }
}

impl Call {
    /// The possible choices at this kind of call; choices that find most mistakes come first.
    #[must_use]
    pub const fn choices(self) -> &'static [Choice] {
        match self {
            Call::Arm => &[Choice::Before, Choice::After],
            Call::Poll => &[Choice::After, Choice::Hold, Choice::Drip],
            Call::Error | Call::Message | Call::Acknowledge => &[Choice::Garbage],
            Call::Post => {
                &[Choice::Full, Choice::After, Choice::Late, Choice::TailFirst, Choice::ReadLate]
            }
            Call::Event => &[Choice::Before, Choice::After, Choice::Interrupt],
            Call::Async | Call::Connection => &[Choice::Before, Choice::After],
            Call::Receive => &[Choice::Before],
            Call::Modify => &[Choice::Late],
            Call::Register => &[Choice::Refuse],
            Call::Unreliable => &[Choice::Lose],
            Call::Shared => &[Choice::ReceiveFirst],
        }
    }
}

impl Choice {
    /// May a right program end with a failure after this choice? Such a choice is tried alone, at
    /// the first visit of a place, and a failure alone shows no mistake.
    #[must_use]
    pub const fn may_end(self) -> bool {
        matches!(self, Choice::Refuse | Choice::Lose)
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
        let call =
            Call::named(call).ok_or_else(|| Bad::new(text, "there is no such kind of call"))?;
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
        let ChoiceEntry { site, object, count, choice } = self;
        write!(f, "{site} object {object} count {count} {}", choice.name())
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
        let choice = Choice::named(choice).filter(|choice| site.call.choices().contains(choice));
        let choice = choice.ok_or_else(|| Bad::new(text, "no such choice at this call"))?;
        Ok(ChoiceEntry { site, object: object.parse()?, count: count.parse()?, choice })
    }
}
