//! The state of a node and its queue pairs for the decorators.
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

/// The decorators of a node's carriers.
pub(crate) struct Taps {
    /// The recorder of packets.
    pub(in crate::node) tape: Option<Tape>,
    /// The packet faults. If there are any, packets may be lost or late.
    pub(in crate::node) profile: Option<FaultProfile>,
}

impl Taps {
    /// `None`: no packets are recorded, and there are no packet faults.
    pub(in crate::node) fn new(
        capture: Option<Arc<Capture>>,
        rules: &PacketFaults,
    ) -> Option<Self> {
        if rules.corrupt != Rate::NEVER || rules.ecn != Rate::NEVER {
            log::warn!(
                "corrupt= and ecn= apply only to packets of the network: ADVERB_PATH=wire sends \
                 packets between processes of this host over the network"
            );
        }
        let rules = PacketFaults { corrupt: Rate::NEVER, ecn: Rate::NEVER, ..rules.clone() };
        let profile = (!rules.is_none()).then(|| FaultProfile::new(rules));
        let tape = capture.map(Tape::new);
        (tape.is_some() || profile.is_some()).then_some(Taps { tape, profile })
    }
}

/// A capture for carriers of packets other than UDP packets.
///
/// A packet is put into the capture's buffer as a whole block, without a system call. The
/// background thread writes the buffer to the file [`PACE`](super::captured::PACE) after the first
/// packet of each round.
pub(in crate::node) struct Tape {
    pub(super) capture: Arc<Capture>,
    /// The background thread has a deadline for writing.
    pub(super) scheduled: AtomicBool,
}

impl Tape {
    pub(super) fn new(capture: Arc<Capture>) -> Self {
        Tape { capture, scheduled: AtomicBool::new(false) }
    }

    /// Writes recorded packets.
    pub(in crate::node) fn write(&self) {
        // A thread that records a packet after this store enters another deadline.
        self.scheduled.store(false, Ordering::Release);
        self.capture.flush();
    }
}

/// The fault rules of a process, for packets other than UDP packets and for one-sided requests.
pub(in crate::node) struct FaultProfile {
    pub(in crate::node) rules: Faults<Delayed>,
    /// Queue pairs with delayed one-sided requests, each with its time.
    pub(super) waiting: Ranked<BTreeSet<(u64, Qpn)>, ranks::Delayed>,
    /// The first of these times, [`NEVER`] without delayed requests.
    pub(super) next: AtomicU64,
}

/// A delayed packet, with its payload.
pub(in crate::node) struct Delayed {
    pub(super) peer: Arc<Peer>,
    pub(super) qpn: Qpn,
    pub(super) ends: (Gid, Gid),
    pub(super) mtu: Option<u32>,
    pub(super) headers: Headers,
    pub(super) payload: Vec<u8>,
}

impl FaultProfile {
    pub(super) fn new(rules: PacketFaults) -> Self {
        FaultProfile {
            rules: Faults::new(rules),
            waiting: Ranked::default(),
            next: AtomicU64::new(NEVER),
        }
    }

    /// Drops delayed packets of a queue pair when its connection ends.
    pub(in crate::node) fn forget(&self, qpn: Qpn) {
        self.rules.release_if(|delayed| delayed.qpn == qpn);
    }

    /// Time of the next work for [`FaultProfile::release`]. `None` if nothing is delayed.
    pub(in crate::node) fn due(&self, now: Time) -> Option<Time> {
        let packets = self.rules.due_in().map(|left| now + left);
        let requests = Some(Time(self.next.load(Ordering::Acquire))).filter(|at| at.0 != NEVER);
        Time::earliest(packets, requests)
    }
}

/// The state of a queue pair for the delay of its one-sided requests.
#[derive(Debug, Default)]
pub(in crate::node) struct Hold {
    /// End of the delay.
    pub(super) until: Option<Time>,
    /// Number of requests that were delayed together, and are performed without another delay.
    pub(super) together: usize,
}

impl Hold {
    /// The send queue is empty, so the next request does not belong to a common delay.
    pub(in crate::node) fn settle(&mut self) {
        self.together = 0;
    }
}

/// The decision on a one-sided request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum Verdict {
    /// The initiator performs the request now.
    Perform,
    /// The request and all later requests wait.
    Wait,
    /// Packets carry the request, and their answer is lost.
    ByPackets,
}
