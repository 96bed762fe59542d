//! What a process counts: the link's packets, the node's, those of all queue pairs.
use super::queue_pair::QpInner;
use crate::ranks;
use adverb_engine::qp::Counters;
use adverb_memory::Private;
use adverb_sync::Ranked;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// What the node counts; packets of the link are counted there.
#[derive(Debug, Default)]
pub struct Counted {
    /// Packets whose headers could not be parsed.
    pub malformed: AtomicU64,
    /// Packets for a queue pair number of ours that does not exist.
    pub no_such_qp: AtomicU64,
    /// Chains of send requests handed over by queue pairs that are gone (DEF-8).
    pub handovers: AtomicU64,
    /// Requests in these.
    pub handed_over: AtomicU64,
    /// Packets dropped that came over the network for a queue pair whose peer reaches it without.
    pub not_from_lane: AtomicU64,
    /// Packets for queue pair 1 dropped that are no MADs of a connection manager, or that there was
    /// no room for.
    pub mad_refused: AtomicU64,
    /// MADs answered for processes or services that are not there.
    pub mad_for_nobody: AtomicU64,
    /// Frames that no flow of this process takes.
    pub frame_for_nobody: AtomicU64,
    /// Packets written to rings of peers on this host.
    pub lane_sent: AtomicU64,
    /// Packets taken from their rings.
    pub lane_received: AtomicU64,
    /// Registrations that peers reach by system calls, by the reason.
    pub(crate) private: Ranked<BTreeMap<&'static str, u64>, ranks::Private>,
    /// What queue pairs counted that are gone.
    pub(super) gone: Ranked<Counters, ranks::Gone>,
}

impl Counted {
    /// A record was taken from a ring. Only the thread that holds the receiver's lock calls this, so
    /// a load and a store do not lose a count of another thread.
    #[inline]
    pub(super) fn lane_received(&self) {
        let count = self.lane_received.load(Ordering::Relaxed);
        self.lane_received.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// A queue pair ends: what it counted stays.
    pub(crate) fn keep(&self, inner: &QpInner) {
        self.gone.lock().add(inner.engine.counters());
        self.handovers.fetch_add(inner.handovers.0, Ordering::Relaxed);
        self.handed_over.fetch_add(inner.handovers.1, Ordering::Relaxed);
    }

    /// A registration's memory does not lie where peers map it.
    pub(crate) fn count_private(&self, why: Private) {
        *self.private.lock().entry(why.word()).or_default() += 1;
    }
}

/// A snapshot of what a process counted, over all its contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Chains of send requests handed over (DEF-8).
    pub handovers: u64,
    /// Requests in these.
    pub handed_over: u64,
    /// System calls that sent packets.
    pub send_calls: u64,
    /// System calls that received packets, or looked for some.
    pub recv_calls: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets that a fault on request dropped, damaged, doubled or held.
    pub packets_harmed: u64,
    /// Packets written to rings of processes on this host.
    pub lane_sent: u64,
    /// Packets taken from their rings.
    pub lane_received: u64,
}
