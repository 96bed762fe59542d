//! Counters of a process: of the link, of the node, and of all queue pairs.
use super::queue_pair::QpInner;
use crate::ranks;
use adverb_engine::qp::Counters;
use adverb_memory::Private;
use adverb_sync::Ranked;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of the node. The link counts its own packets.
#[derive(Debug, Default)]
pub struct Counted {
    /// Packets with headers that could not be parsed.
    pub malformed: AtomicU64,
    /// Packets for a queue pair number of this process without a queue pair.
    pub no_such_qp: AtomicU64,
    /// Chains of send requests committed by ended queue pairs (DEF-8).
    pub commits: AtomicU64,
    /// Requests in these chains.
    pub committed: AtomicU64,
    /// Packets dropped because they arrived over the network, although the peer reaches the queue
    /// pair through a ring.
    pub not_from_ring: AtomicU64,
    /// Dropped packets for queue pair 1: packets other than MADs of a connection manager, and
    /// packets without room.
    pub mad_refused: AtomicU64,
    /// MADs for unknown processes or services, which were answered.
    pub mad_for_nobody: AtomicU64,
    /// Frames that no flow of this process takes.
    pub frame_for_nobody: AtomicU64,
    /// Packets written to rings of peers on this host.
    pub ring_sent: AtomicU64,
    /// Packets taken from rings of peers on this host.
    pub ring_received: AtomicU64,
    /// Registrations of memory that peers reach by system calls, by the reason.
    pub(crate) private: Ranked<BTreeMap<&'static str, u64>, ranks::Private>,
    /// The counters of ended queue pairs, by the name of their device.
    pub(super) ended: Ranked<BTreeMap<String, Counters>, ranks::EndedCounters>,
}

impl Counted {
    /// A record was taken from a ring. Only the thread that holds the receiver's lock calls this,
    /// so a load and a store do not lose a count of another thread.
    #[inline]
    pub(super) fn ring_received(&self) {
        let count = self.ring_received.load(Ordering::Relaxed);
        self.ring_received.store(count.wrapping_add(1), Ordering::Relaxed);
    }

    /// A queue pair ends: what it counted stays.
    pub(crate) fn keep(&self, inner: &QpInner, device: &str) {
        let mut ended = self.ended.lock();
        match ended.get_mut(device) {
            Some(sum) => sum.add(inner.engine.counters()),
            None => drop(ended.insert(device.to_owned(), *inner.engine.counters())),
        }
        self.commits.fetch_add(inner.commits.chains, Ordering::Relaxed);
        self.committed.fetch_add(inner.commits.requests, Ordering::Relaxed);
    }

    /// Counts a registration of memory that peers cannot map.
    pub(crate) fn count_private(&self, why: Private) {
        *self.private.lock().entry(why.word()).or_default() += 1;
    }
}

/// A snapshot of the counters of a process, over all its contexts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Chains of send requests committed (DEF-8).
    pub commits: u64,
    /// Requests in these chains.
    pub committed: u64,
    /// System calls that sent packets.
    pub send_calls: u64,
    /// System calls that received packets, or looked for packets.
    pub recv_calls: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Packets dropped, damaged, doubled or delayed by a fault on request.
    pub packets_harmed: u64,
    /// Packets written to rings of processes on this host.
    pub ring_sent: u64,
    /// Packets taken from rings of processes on this host.
    pub ring_received: u64,
}
