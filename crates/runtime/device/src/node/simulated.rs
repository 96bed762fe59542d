//! A node in virtual time: no socket, no thread and no clock of its own (feature `sim`).
//!
//! The simulator sets the time, carries the packets ([`SimulatedWire`]) and performs the turns of
//! the background thread ([`SimulatedNode`]). Everything else is the node of a real process.
use super::carriers::wire::{SimulatedWire, Wire};
use super::clock::Clocks;
use super::core::Node;
use super::policy::Pace;
use super::start::Parts;
use super::thread::{Sleep, turn};
use super::timers::NEVER;
use crate::error::Error;
use adverb_engine::Time;
use adverb_memory::Life;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What waits for a look of the program or of the background thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Queue pairs to be pumped.
    Requests,
    /// Packets that wait for a receive, or for the process that they go to.
    Packets,
    /// ACKs that are held for the program's next poll.
    Answers,
}

/// How the background thread rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It goes on at once.
    None,
    /// It sleeps until a deadline, a wake-up, or (`at_sockets`) a packet.
    Asleep {
        /// The deadline; `None`: there is none.
        until: Option<Time>,
        /// An arriving packet ends the sleep.
        at_sockets: bool,
    },
}

/// A node in virtual time, and its background thread, whose turns and sleeps follow each other.
#[derive(Debug)]
pub struct SimulatedNode {
    node: Arc<Node>,
    pace: Pace,
}

impl SimulatedNode {
    /// A node at time zero. It shares no memory with other processes. `seed` says where the numbers
    /// of its queue pairs begin.
    ///
    /// # Errors
    /// No descriptors.
    pub fn new(seed: u64, wire: Box<dyn SimulatedWire>) -> Result<Self, Error> {
        let node = Node::of(Parts {
            life: Life::current(),
            clocks: Clocks::Virtual(AtomicU64::new(0)),
            link: Wire::Simulated(wire),
            lanes: None,
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

    /// Virtual time is at least `now` from here on. A look at the clock moves it on by itself.
    pub fn advance(&self, now: Time) {
        self.node.clocks.advance(now);
    }

    /// When the background thread must look at a timer next, if ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        Some(self.node.next_deadline()).filter(|at| *at != NEVER).map(Time)
    }

    /// What waits for a look that no timer is entered for.
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

    /// The thread does what it does from one sleep to the next.
    pub fn turn(&mut self) {
        turn(&self.node, &mut self.pace, false);
    }

    /// The thread announces its sleep.
    #[must_use]
    pub fn sleep(&self) -> Rest {
        // The length counts from a time before this one. So a rest may end a little late, as any
        // sleep.
        let Some(Sleep { limit, asleep }) = Sleep::begin(&self.node, self.pace.away()) else {
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
