//! What a node and its queue pairs keep for the decorators.
use crate::host::Peer;
use crate::node::timers::NEVER;
use crate::ranks;
use adverb_engine::{Gid, Qpn, Time};
use adverb_link::Capture;
use adverb_link::faults::{Faults, PacketFaults, Rate};
use adverb_sync::Ranked;
use adverb_wire::Headers;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What the carriers of a node are decorated with.
pub(crate) struct Taps {
    pub(super) tape: Option<Tape>,
    pub(super) weather: Option<Weather>,
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

    /// May a SEND go without packets? The rules of faults are rules for packets, and a trace counts
    /// PSNs.
    pub(in crate::node) fn lets_messages_pass(&self) -> bool {
        self.weather.is_none() && !adverb_trace::on()
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

/// A capture, for carriers whose packets are no UDP packets.
///
/// A packet is put into the capture's buffer as a whole block, without a system call. The
/// background thread writes the buffer to the file [`PACE`](super::captured::PACE) after the first
/// packet of each round.
pub(in crate::node) struct Tape {
    pub(super) capture: Arc<Capture>,
    /// The background thread has a deadline for it.
    pub(super) scheduled: AtomicBool,
}

impl Tape {
    pub(super) fn new(capture: Arc<Capture>) -> Self {
        Tape { capture, scheduled: AtomicBool::new(false) }
    }

    /// Writes what was recorded.
    pub(super) fn write(&self) {
        // Whoever records from here on enters another deadline.
        self.scheduled.store(false, Ordering::Release);
        self.capture.flush();
    }
}

/// The rules of a process at work on packets that are no UDP packets, and on one-sided requests.
pub(in crate::node) struct Weather {
    pub(super) rules: Faults<Held>,
    /// Queue pairs whose one-sided requests wait, each with its time.
    pub(super) waiting: Ranked<BTreeSet<(u64, Qpn)>, ranks::Delayed>,
    /// The first of these times, [`NEVER`] without one.
    pub(super) next: AtomicU64,
}

/// A packet that is held, with its payload.
pub(super) struct Held {
    pub(super) peer: Arc<Peer>,
    pub(super) qpn: Qpn,
    pub(super) ends: (Gid, Gid),
    pub(super) mtu: Option<u32>,
    pub(super) headers: Headers,
    pub(super) payload: Vec<u8>,
}

impl Weather {
    pub(super) fn new(rules: PacketFaults) -> Self {
        Weather { rules: Faults::new(rules), waiting: Ranked::default(), next: AtomicU64::new(NEVER) }
    }

    pub(super) fn add_qp(&self, qpn: Qpn, nth: u32) {
        self.rules.add_qp(qpn, nth);
    }

    pub(super) fn remove_qp(&self, qpn: Qpn) {
        self.rules.remove_qp(qpn);
    }

    /// The queue pair is connected no more: what is held for it is dropped.
    pub(in crate::node) fn forget(&self, qpn: Qpn) {
        self.rules.release_if(|held| held.qpn == qpn);
    }

    pub(super) fn due(&self, now: Time) -> Option<Time> {
        let packets = self.rules.due_in().map(|left| now + left);
        let requests = Some(Time(self.next.load(Ordering::Acquire))).filter(|at| at.0 != NEVER);
        Time::earliest(packets, requests)
    }
}

/// What a queue pair keeps of the delay of its one-sided requests.
#[derive(Debug, Default)]
pub(in crate::node) struct Hold {
    /// Until then they wait.
    pub(super) until: Option<Time>,
    /// So many have waited together, and go on without another delay.
    pub(super) together: usize,
}

impl Hold {
    /// The send queue is empty: nothing waits together with what comes next.
    pub(in crate::node) fn settle(&mut self) {
        self.together = 0;
    }
}

/// What becomes of a one-sided request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Verdict {
    /// The initiator performs it now.
    Perform,
    /// It waits, and what is behind it.
    Wait,
    /// Packets carry it, whose answer is lost.
    ByPackets,
}
