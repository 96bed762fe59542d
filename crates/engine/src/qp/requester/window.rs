//! The flow window: how much may be unacknowledged.
//!
//! RoCE counts on a lossless network and has no window of its own but the end-to-end credits, which say nothing of
//! bytes. Here packets cross socket buffers, which drop. The window grows with acknowledgements and halves with losses
//! (as TCP's does), up to `QpConfig::max_inflight`.

/// What a packet costs a socket buffer beside its payload: headers and the kernel's bookkeeping (about a `sk_buff`).
pub(super) const OVERHEAD: u64 = 768;
/// Where it starts.
const INITIAL: u64 = 64 * 1024;

#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    /// Below it the window grows by what is acknowledged, above it by a packet a round trip.
    threshold: u64,
    max: u64,
}

impl Window {
    pub(super) fn new(max: u32) -> Self {
        let max = u64::from(max);
        Window { size: INITIAL.min(max), threshold: max, max }
    }
    /// Without bounds.
    pub(super) fn open() -> Self {
        Window { size: u64::MAX / 2, threshold: 0, max: 0 }
    }
    /// May a packet of this cost be sent? One always may.
    pub(super) fn admits(&self, in_flight: u64, cost: u64) -> bool {
        in_flight == 0 || in_flight + cost <= self.size
    }
    /// `acked` was acknowledged.
    pub(super) fn grow(&mut self, acked: u64, mtu: u64) {
        if self.size >= self.max {
            return;
        }
        let more = if self.size < self.threshold {
            acked
        } else {
            ((mtu + OVERHEAD) * acked / self.size.max(1)).max(1)
        };
        self.size = (self.size + more).min(self.max);
    }
    /// Something was lost.
    pub(super) fn shrink(&mut self, mtu: u64) {
        if self.max == 0 {
            return;
        }
        self.size = (self.size / 2).max(mtu + OVERHEAD);
        self.threshold = self.size;
    }
}
