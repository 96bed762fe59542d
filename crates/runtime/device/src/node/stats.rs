//! All counters of a process, over its carriers and queue pairs.
use super::core::Node;
use super::counters::Stats;
use super::queue_pair::{AnyQp, QpInner};
use crate::ranks;
use adverb_engine::qp::Counters;
use adverb_sync::RankedGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Longest wait for a locked queue pair.
pub(super) const COUNT_WAIT: Duration = Duration::from_millis(20);
/// Looks at a lock between two sleeps.
const LOOKS: u32 = 200;
/// Length of such a sleep.
const NAP: Duration = Duration::from_micros(50);

/// Locks a queue pair, or gives up after `patience`. A program that posts without a pause takes the
/// lock again right after each release, before a sleeping thread can wake. So this thread looks
/// again and again, with short sleeps in between for a holder without a processor.
pub(super) fn lock_within(
    qp: &AnyQp,
    patience: Duration,
) -> Option<RankedGuard<'_, QpInner, ranks::QueuePair>> {
    let until = Instant::now() + patience;
    loop {
        for _ in 0..LOOKS {
            if let Some(inner) = qp.inner.try_lock() {
                return Some(inner);
            }
            std::hint::spin_loop();
        }
        if Instant::now() >= until {
            return None;
        }
        std::thread::sleep(NAP);
    }
}

impl Node {
    /// Calls `each` with every queue pair. A queue pair is left out if its lock is held for long.
    pub(super) fn each_qp(&self, mut each: impl FnMut(&AnyQp, &QpInner)) {
        for qp in self.registry.qps.from(0) {
            if let Some(inner) = lock_within(&qp, COUNT_WAIT) {
                each(&qp, &inner);
            }
        }
    }

    /// Chains committed and their requests, of all queue pairs as in [`Node::qp_counters`].
    fn commits(&self) -> (u64, u64) {
        let mut sum = (
            self.counters.commits.load(Ordering::Relaxed),
            self.counters.committed.load(Ordering::Relaxed),
        );
        self.each_qp(|_, inner| {
            sum.0 += inner.commits.chains;
            sum.1 += inner.commits.requests;
        });
        sum
    }

    /// The sum of the counters of all queue pairs of the process so far, including ended queue
    /// pairs. A queue pair is left out if its lock is held for long.
    #[must_use]
    pub fn qp_counters(&self) -> Counters {
        let mut sum = Counters::default();
        self.counters.ended.lock().values().for_each(|ended| sum.add(ended));
        self.each_qp(|_, inner| sum.add(inner.engine.counters()));
        sum
    }

    /// All counters so far, by name. Each arrived packet is counted once: either in a counter of
    /// dropped packets, by the reason, or in a counter of accepted packets.
    #[must_use]
    pub fn named_counters(&self) -> Vec<(&'static str, u64)> {
        let own = [
            ("malformed", &self.counters.malformed),
            ("no_such_qp", &self.counters.no_such_qp),
            ("rx_drop_not_from_ring", &self.counters.not_from_ring),
            ("mad_refused", &self.counters.mad_refused),
            ("mad_for_nobody", &self.counters.mad_for_nobody),
            ("ring_sent", &self.counters.ring_sent),
            ("ring_received", &self.counters.ring_received),
        ];
        let (commits, committed) = self.commits();
        let injected = self.faults.iter().flat_map(|faults| faults.counters.snapshot().named());
        let own = own.into_iter().map(|(name, value)| (name, value.load(Ordering::Relaxed)));
        let own = own.chain(injected).chain([("commits", commits), ("committed", committed)]);
        self.link.stats().named().into_iter().chain(own).chain(self.qp_counters().named()).collect()
    }

    /// Logs the counters at level `info`, without zeros.
    pub(super) fn log_counters(&self) {
        if !log::log_enabled!(log::Level::Info) {
            return;
        }
        let mut text = String::new();
        for (name, value) in self.named_counters().into_iter().filter(|(_, value)| *value != 0) {
            text += &format!(" {name}={value}");
        }
        if let Some(host) = &self.host {
            // Memory that peers may map, in bytes, and the reasons for access by system calls to
            // other regions.
            let usage = host.file.usage();
            text += &format!(
                " shared_bytes={} shared_resident={}",
                usage.own + usage.blocks,
                usage.resident
            );
            for (why, times) in &*self.counters.private.lock() {
                text += &format!(" private_{why}={times}");
            }
        }
        log::info!("counters:{text}");
    }

    /// A snapshot of the counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let link = self.link.stats();
        let (commits, committed) = self.commits();
        Stats {
            commits,
            committed,
            send_calls: link.tx_syscalls,
            recv_calls: link.rx_syscalls,
            packets_sent: link.tx_packets,
            packets_received: link.rx_packets,
            packets_harmed: link.faults.named().iter().map(|(_, count)| count).sum(),
            ring_sent: self.counters.ring_sent.load(Ordering::Relaxed),
            ring_received: self.counters.ring_received.load(Ordering::Relaxed),
        }
    }
}
