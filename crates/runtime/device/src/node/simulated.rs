//! A node in virtual time, without sockets, threads and clocks (feature `sim`).
//!
//! The simulator sets the time, carries the packets ([`SimulatedWire`]) and performs the turns of
//! the background thread ([`SimulatedNode`]). All other parts are the node of a real process. The
//! simulator takes over at four places:
//!
//! - **Clock.** `node/clock.rs` reads the machine's clock, or the time of the simulator. Each look
//!   at the virtual clock moves the time on a little, so a loop that waits for a time ends.
//! - **Wire.** `Node::link` is a `Wire`: sockets, or a [`SimulatedWire`]. Services, frames, groups
//!   and handshakes need sockets, so a simulated wire answers them as absent.
//! - **Background thread.** `Sleep::begin` announces a sleep and says how long the sleep may last.
//!   `turn` is all work between two sleeps. A real thread blocks in `ppoll` between the two; the
//!   simulator waits in virtual time.
//! - **Get-event call.** `EventQueue::pop_step` is one look of a thread that waits in such a call.
//!
//! A simulated node shares no memory with other nodes, so rings and handshakes are not simulated.
//! After each step, the oracle (`tests/sim/src/node`) asks the node for its next deadline and its
//! waiting work. So a lost wake-up shows at once: the background thread sleeps beside the work.
use super::carriers::wire::{SimulatedWire, Wire};
use super::clock::Clocks;
use super::core::Node;
use super::policy::Pace;
use super::start::Parts;
use super::thread::{Sleep, turn};
use super::timers::NEVER;
use crate::error::Error;
use adverb_engine::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Work that waits for a poll of the program or for the background thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Queue pairs to be pumped.
    Requests,
    /// Packets that wait for a receive, or for their destination process.
    Packets,
    /// ACKs deferred to the program's next poll.
    Answers,
}

/// The rest of the background thread between two turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The thread continues at once.
    None,
    /// The thread sleeps until a deadline, a wake-up, or (`at_sockets`) a packet.
    Asleep {
        /// The deadline, if any.
        until: Option<Time>,
        /// An arriving packet ends the sleep.
        at_sockets: bool,
    },
}

/// A node in virtual time, and its background thread, with alternating turns and sleeps.
#[derive(Debug)]
pub struct SimulatedNode {
    node: Arc<Node>,
    pace: Pace,
}

impl SimulatedNode {
    /// A node at time zero. The node shares no memory with other processes. `seed` determines the
    /// first queue pair number.
    ///
    /// # Errors
    /// No free descriptors.
    pub fn new(seed: u64, wire: Box<dyn SimulatedWire>) -> Result<Self, Error> {
        let node = Node::of(Parts {
            clocks: Clocks::Virtual(AtomicU64::new(0)),
            link: Wire::Simulated(wire),
            host: None,
            taps: None,
            faults: None,
            news: None,
            seed,
        })?;
        Ok(SimulatedNode { node, pace: Pace::default() })
    }

    /// The node.
    #[must_use]
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Moves virtual time on to `now`, unless it is later already. A look at the clock moves it on
    /// by itself.
    pub fn advance(&self, now: Time) {
        self.node.clocks.advance(now);
    }

    /// The background thread's next deadline, if any.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        Some(self.node.next_deadline()).filter(|at| *at != NEVER).map(Time)
    }

    /// Waiting work without a timer entry.
    #[must_use]
    pub fn work(&self) -> Option<Work> {
        if self.node.any_pending.load(Ordering::SeqCst) {
            return Some(Work::Requests);
        }
        if self.node.relay.is_waiting() {
            return Some(Work::Packets);
        }
        self.node.any_delayed.load(Ordering::SeqCst).then_some(Work::Answers)
    }

    /// Performs a turn of the thread between two sleeps.
    pub fn turn(&mut self) {
        turn(&self.node, &mut self.pace, false, true);
    }

    /// The thread announces its sleep.
    #[must_use]
    pub fn sleep(&self) -> Rest {
        // The length counts from an earlier time than `now`. So a rest may end a little late, like
        // any sleep.
        let Some(Sleep { limit, asleep, .. }) = Sleep::begin(&self.node, self.pace.away()) else {
            return Rest::None;
        };
        let now = self.node.now();
        Rest::Asleep { until: limit.map(|limit| now + limit), at_sockets: asleep.is_some() }
    }

    /// Was the thread woken since it last woke up?
    #[must_use]
    pub fn is_woken(&self) -> bool {
        self.node.wake.take()
    }

    /// The sleep is over.
    pub fn wake_up(&self) {
        let sleep = Sleep { limit: None, asleep: None };
        let _ = sleep.end(&self.node, true);
    }
}
