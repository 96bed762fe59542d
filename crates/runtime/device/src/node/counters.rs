//! What a process counts: the link's packets, the node's, those of all queue pairs.
use super::Node;
use super::queue_pair::{AnyQp, QpInner};
use crate::ranks;
use adverb_engine::qp::Counters;
use adverb_memory::Private;
use adverb_sync::Ranked;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a queue pair that somebody works on is waited for.
const COUNT_WAIT: Duration = Duration::from_millis(20);

/// What the node counts; packets of the link are counted there.
#[derive(Debug, Default)]
pub struct NodeCounters {
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
}

impl NodeCounters {
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

impl Node {
    /// A queue pair ends: what it counted stays.
    pub(crate) fn keep_counters(&self, inner: &QpInner) {
        self.gone.lock().add(inner.engine.counters());
        self.counters.handovers.fetch_add(inner.handovers.0, Ordering::Relaxed);
        self.counters.handed_over.fetch_add(inner.handovers.1, Ordering::Relaxed);
    }

    /// Chains handed over and requests in them, of all queue pairs as [`Node::qp_counters`].
    fn handovers(&self) -> (u64, u64) {
        let mut sum = (
            self.counters.handovers.load(Ordering::Relaxed),
            self.counters.handed_over.load(Ordering::Relaxed),
        );
        self.qps.for_each(|qp: &AnyQp| {
            if let Some(inner) = qp.inner.try_lock_for(COUNT_WAIT) {
                sum.0 += inner.handovers.0;
                sum.1 += inner.handovers.1;
            }
        });
        sum
    }

    /// What all queue pairs of the process counted so far, those included that are gone. One that
    /// is locked for long is left out.
    #[must_use]
    pub fn qp_counters(&self) -> Counters {
        let mut sum = *self.gone.lock();
        self.qps.for_each(|qp: &AnyQp| {
            if let Some(inner) = qp.inner.try_lock_for(COUNT_WAIT) {
                sum.add(inner.engine.counters());
            }
        });
        sum
    }

    /// Everything counted so far, by name. Each packet that came stands in one of the counters of
    /// what was dropped, by its reason, or in one of what was taken.
    #[must_use]
    pub fn named_counters(&self) -> Vec<(&'static str, u64)> {
        let own = [
            ("malformed", &self.counters.malformed),
            ("no_such_qp", &self.counters.no_such_qp),
            ("rx_drop_not_from_lane", &self.counters.not_from_lane),
            ("mad_refused", &self.counters.mad_refused),
            ("mad_for_nobody", &self.counters.mad_for_nobody),
            ("lane_sent", &self.counters.lane_sent),
            ("lane_received", &self.counters.lane_received),
        ];
        let (handovers, handed_over) = self.handovers();
        let injected = self.faults.iter().flat_map(|faults| {
            let counters = &faults.counters;
            [
                ("fault_rnr", &counters.rnr),
                ("fault_kill_qp", &counters.kill_qp),
                ("fault_fail", &counters.fail),
                ("fault_event", &counters.event),
                ("fault_cm_drop", &counters.cm_drop),
                ("fault_cm_reject", &counters.cm_reject),
            ]
        });
        let own = own.into_iter().chain(injected).map(|(name, value)| (name, value.load(Ordering::Relaxed)));
        let own = own.chain([("handovers", handovers), ("handed_over", handed_over)]);
        self.link.stats().named().into_iter().chain(own).chain(self.qp_counters().named()).collect()
    }

    /// Says at level `info` what was counted; counters that are zero are left out.
    pub(super) fn log_counters(&self) {
        if !log::log_enabled!(log::Level::Info) {
            return;
        }
        let mut text = String::new();
        for (name, value) in self.named_counters().into_iter().filter(|(_, value)| *value != 0) {
            text += &format!(" {name}={value}");
        }
        if let Some(lanes) = &self.lanes {
            // What peers may map, in bytes, and why other regions are reached by system calls.
            let usage = lanes.file.usage();
            text += &format!(" shared_bytes={} shared_resident={}", usage.own + usage.blocks, usage.resident);
            for (why, times) in &*self.counters.private.lock() {
                text += &format!(" private_{why}={times}");
            }
        }
        log::info!("counters:{text}");
    }

    /// What this process counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let link = self.link.stats();
        let (handovers, handed_over) = self.handovers();
        Stats {
            handovers,
            handed_over,
            send_calls: link.tx_syscalls,
            recv_calls: link.rx_syscalls,
            packets_sent: link.tx_packets,
            packets_received: link.rx_packets,
            packets_harmed: link.fault_drop
                + link.fault_corrupt
                + link.fault_dup
                + link.fault_reorder
                + link.fault_delay
                + link.fault_ecn,
            lane_sent: self.counters.lane_sent.load(Ordering::Relaxed),
            lane_received: self.counters.lane_received.load(Ordering::Relaxed),
        }
    }
}
