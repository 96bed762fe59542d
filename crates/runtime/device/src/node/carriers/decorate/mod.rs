//! Decorators of carriers: packets are recorded, or meet faults on request, on the path that they
//! take anyway.
//!
//! A carrier sends by a [`Road`](super::road::Road), and gives what has arrived to an [`Inlet`].
//! Both decorators are made of these two:
//!
//! | decorator | sends | arrivals | one-sided requests |
//! |---|---|---|---|
//! | [`Captured`] | records each packet that the road has taken | records each packet, and what befell it | records what a NIC would have sent |
//! | [`Faulty`] | | drops, delays, doubles and reorders them by the rules of the process | delays them, or has packets carry them |
//!
//! The carriers of UDP packets have the same two in the link (`UdpLink`): they damage bits and
//! record wrong ICRCs, which only UDP packets have. Both places write one file and obey the same
//! rules ([`Taps`]). A node without either pays one branch a packet and one-sided request.
//!
//! Under faults a ring loses packets, as a network does. Its engine needs no other rules: a ring
//! carries the engine's own packets, with retries and RNR. What changes is that
//! - deadlines are exact, as a timeout means a loss there ([`Taps::is_lossy`]), and
//! - a payload that a packet points at is fetched when the packet comes, before the rules decide.
//!
//! **One-sided requests** move no packet, and only the initiator knows of them. So the rules of the
//! initiator's process decide, as for the answer that would arrive there ([`Verdict`]):
//! - `delay`: the request waits. Requests that were posted with it wait with it, and answers to the
//!   peer leave meanwhile.
//! - `drop`: packets carry the request through the ring. The draw was for the next answer, so the
//!   answer to these packets is lost, and the engine sends the request again.
//! - `dup` and `reorder` mean nothing here: the answer would be the only one under way.
mod captured;
mod faulty;
mod inlet;

pub(in crate::node) use captured::{Captured, Initiator, Tape};
pub(in crate::node) use faulty::{Faulty, Hold, Verdict, Weather};
pub(in crate::node) use inlet::{Arrival, Inlet};

use crate::host::Peer;
use crate::node::batch::Batch;
use crate::node::core::Node;
use crate::node::queue_pair::QpInner;
use crate::node::tx::Tx;
use adverb_engine::{Qpn, Time};
use adverb_link::Capture;
use adverb_link::faults::{PacketFaults, Rate};
use inlet::{Fate, ToQueuePair};
use std::sync::Arc;

/// What the carriers of a node are decorated with.
pub(crate) struct Taps {
    tape: Option<Tape>,
    weather: Option<Weather>,
}

impl Taps {
    /// `None`: nothing is recorded, and nothing befalls packets.
    pub(in crate::node) fn new(capture: Option<Arc<Capture>>, rules: &PacketFaults) -> Option<Self> {
        if rules.corrupt != Rate::NEVER || rules.ecn != Rate::NEVER {
            log::warn!(
                "corrupt= and ecn= befall packets of the network alone: ADVERB_PATH=wire sends those between processes of this host there"
            );
        }
        let rules = PacketFaults { corrupt: Rate::NEVER, ecn: Rate::NEVER, ..rules.clone() };
        let weather = (!rules.is_none()).then(|| Weather::new(rules));
        let tape = capture.map(Tape::new);
        (tape.is_some() || weather.is_some()).then_some(Taps { tape, weather })
    }

    /// Where packets are recorded.
    pub(in crate::node) fn tape(&self) -> Option<&Tape> {
        self.tape.as_ref()
    }

    /// What befalls packets.
    pub(in crate::node) fn weather(&self) -> Option<&Weather> {
        self.weather.as_ref()
    }

    /// May packets be lost or late?
    pub(in crate::node) fn is_lossy(&self) -> bool {
        self.weather.is_some()
    }

    /// A queue pair was created, the `nth` of its process.
    pub(in crate::node) fn add_qp(&self, qpn: Qpn, nth: u32) {
        if let Some(weather) = &self.weather {
            weather.add_qp(qpn, nth);
        }
    }

    /// A queue pair is gone.
    pub(in crate::node) fn remove_qp(&self, qpn: Qpn) {
        if let Some(weather) = &self.weather {
            weather.remove_qp(qpn);
        }
    }

    /// A packet has come. Its payload is at hand if packets may be held ([`Taps::is_lossy`]).
    /// `came`: [`Batch::came`].
    #[cold]
    #[inline(never)]
    pub(in crate::node) fn arrive(
        &self,
        node: &Node,
        (tx, came): (&mut Tx, &mut Option<u64>),
        inner: &mut QpInner,
        arrival: &Arrival<'_>,
    ) {
        let to = ToQueuePair { node, tx };
        let fate = Fate::default();
        match (&self.weather, &self.tape) {
            (None, None) => { to }.take(inner, arrival, &fate),
            (None, Some(tape)) => Captured::new(to, tape, node, came).take(inner, arrival, &fate),
            (Some(weather), None) => Faulty::new(to, weather, node).take(inner, arrival, &fate),
            (Some(weather), Some(tape)) => {
                let inlet = Captured::new(to, tape, node, came);
                Faulty::new(inlet, weather, node).take(inner, arrival, &fate);
            }
        }
    }

    /// Gives what was held to its queue pairs, and lets one-sided requests go on, whose time has
    /// come. `true` if there was anything.
    pub(in crate::node) fn release(&self, node: &Node, batch: &mut Batch) -> bool {
        self.weather.as_ref().is_some_and(|weather| weather.release(node, batch))
    }

    /// A peer has ended: what it sent and is held comes now.
    pub(in crate::node) fn release_of(&self, node: &Node, batch: &mut Batch, peer: &Arc<Peer>) {
        if let Some(weather) = &self.weather {
            weather.release_of(node, batch, peer);
        }
    }

    /// When [`Taps::release`] has something to do; `None` when nothing is held.
    pub(in crate::node) fn due(&self, now: Time) -> Option<Time> {
        self.weather.as_ref()?.due(now)
    }

    /// Writes what was recorded.
    pub(in crate::node) fn write(&self) {
        if let Some(tape) = &self.tape {
            tape.write();
        }
    }
}
