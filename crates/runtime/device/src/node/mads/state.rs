//! The state of a node for MADs.
use crate::node::mad_handler::MadHandler;
use crate::node::spin::Spin;
use crate::node::timers::Deadline;
use crate::ranks;
use adverb_engine::Time;
use adverb_link::OwnedPacket;
use adverb_local::{ServiceIndex, Slot};
use adverb_sync::{Ranked, RankedRw};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

/// The state of a node for MADs.
#[derive(Default)]
pub(crate) struct Mads {
    pub(in crate::node) handler: RankedRw<Option<Arc<dyn MadHandler>>, ranks::MadHandler>,
    pub(in crate::node) inbox: Ranked<VecDeque<OwnedPacket>, ranks::MadInbox>,
    /// There is work for MADs.
    pub(in crate::node) any: AtomicBool,
    /// A thread has the turn to do the work: see `serve`.
    pub(in crate::node) served: AtomicBool,
    /// How long a waiting thread of the program spins before it sleeps.
    pub(crate) spin: Spin,
    /// Threads of the program that look for MADs at this moment.
    pub(in crate::node) looking: AtomicUsize,
    /// The handler's deadline has come.
    pub(in crate::node) due: AtomicBool,
    /// Time of the entry in the timer queue.
    pub(in crate::node) at: Deadline,
    /// Slots of ended processes.
    pub(in crate::node) ended: Ranked<Vec<Slot>, ranks::MadEnded>,
    /// Services for which this process listens.
    pub(in crate::node) services:
        RankedRw<Vec<(u64, Option<IpAddr>, ServiceIndex)>, ranks::MadServices>,
    pub(in crate::node) psn: AtomicU32,
    pub(in crate::node) spread: Ranked<Option<Time>, ranks::MadSpread>,
    /// Requests have to arrive at all addresses, including later addresses.
    pub(in crate::node) everywhere: AtomicBool,
    /// Requests for services without a listener, each with the end of its wait, oldest first.
    pub(in crate::node) early: Ranked<VecDeque<(Time, OwnedPacket)>, ranks::MadEarly>,
}

impl Mads {
    pub(in crate::node) fn has_handler(&self) -> bool {
        self.handler.read().is_some()
    }
}
