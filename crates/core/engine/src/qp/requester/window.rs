//! The flow window: how much may be unacknowledged.
//!
//! RoCE counts on a lossless network and has no window of its own but the end-to-end credits, which
//! say nothing of bytes. Here packets cross socket buffers and routers, which drop. The window
//! grows with acknowledgements and gives way to losses as TCP's does (RFC 5681, once for all losses
//! of a window as in RFC 6582), up to `QpConfig::max_inflight`. To congestion notifications it
//! gives way by how many there are, as DCQCN's rate does: `alpha` follows the share of round trips
//! that were notified of.

/// What a packet costs a socket buffer beside its payload: headers and the kernel's bookkeeping
/// (about a `sk_buff`).
pub(super) const OVERHEAD: u64 = 768;
/// Where it starts.
const INITIAL: u64 = 64 * 1024;
/// Packets it has after a silence, and at least after a loss: few enough for a small router, enough
/// that a loss is mostly followed by a packet that tells of it.
const RESTART: u64 = 2;
const LEAST: u64 = 4;
/// Packets of a long message between two that ask for an ACK, at most; at least two in a window
/// ask.
const ACK_REQ_EVERY: u64 = 16;
/// `alpha` of all round trips.
const ALPHA_ONE: u64 = 1024;
/// Part of the way that `alpha` goes in a round trip.
const ALPHA_GAIN: u64 = 16;

#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    /// Below it the window grows by what is acknowledged, above it by a packet a round trip.
    threshold: u64,
    max: u64,
    /// Losses of packets before this PSN were answered for.
    recovered: u64,
    /// What it was before a silence, until it is known what the silence meant.
    before: Option<(u64, u64)>,
    /// How much congestion there is, in parts of [`ALPHA_ONE`]; counts from the first notification
    /// on.
    alpha: u64,
    notified: bool,
    /// Up to here lasts the round trip in hand; was it notified of?
    round: u64,
    round_marked: bool,
    ack_every: u32,
}

impl Window {
    pub(super) fn new(max: u32) -> Self {
        let max = u64::from(max);
        Window {
            size: INITIAL.min(max),
            threshold: max,
            max,
            recovered: 0,
            before: None,
            alpha: ALPHA_ONE,
            notified: false,
            round: 0,
            round_marked: false,
            ack_every: ACK_REQ_EVERY as u32,
        }
    }
    /// Without bounds.
    pub(super) fn open() -> Self {
        Window { size: u64::MAX / 2, ..Window::new(0) }
    }
    fn is_open(&self) -> bool {
        self.max == 0
    }
    /// May a packet of this cost be sent? One always may.
    pub(super) fn admits(&self, in_flight: u64, cost: u64) -> bool {
        in_flight == 0 || in_flight + cost <= self.size
    }
    /// `acked` was acknowledged, up to the PSN `una`. `beyond`: it includes packets that were to be
    /// sent again and have not been sent again yet.
    pub(super) fn progress(&mut self, acked: u64, mtu: u64, una: u64, high: u64, beyond: bool) {
        if let Some((size, threshold)) = self.before.take()
            && beyond
        {
            // Nothing was lost but time (as RFC 5682 finds out).
            (self.size, self.threshold, self.recovered) = (size, threshold, una);
        }
        if self.notified && una >= self.round {
            if !self.round_marked {
                self.alpha -= self.alpha / ALPHA_GAIN;
            }
            (self.round, self.round_marked) = (high, false);
        }
        if self.size >= self.max {
            return;
        }
        let more = if self.size < self.threshold {
            acked
        } else {
            ((mtu + OVERHEAD) * acked / self.size.max(1)).max(1)
        };
        self.size = (self.size + more).min(self.max);
        self.resized(mtu);
    }
    /// Something was lost, and what came after it arrived.
    pub(super) fn lost(&mut self, mtu: u64, una: u64, high: u64) {
        if una < self.recovered || self.is_open() {
            return;
        }
        self.recovered = high;
        self.size = (self.size / 2).max(LEAST * (mtu + OVERHEAD)).min(self.max);
        self.threshold = self.size;
        self.resized(mtu);
    }
    /// Nothing has been heard for too long.
    pub(super) fn silent(&mut self, mtu: u64, high: u64) {
        if self.is_open() {
            return;
        }
        let small = (RESTART * (mtu + OVERHEAD)).min(self.max);
        self.before.get_or_insert((self.size, self.threshold));
        if self.size > small {
            self.threshold = (self.size / 2).max(small);
        }
        self.size = small;
        self.recovered = high;
        self.resized(mtu);
    }
    /// The network is congested. The window gives way once a round trip.
    pub(super) fn congested(&mut self, mtu: u64, una: u64, high: u64) {
        if self.is_open() {
            return;
        }
        if !self.notified {
            (self.notified, self.round, self.round_marked) = (true, una, false);
        }
        if self.round_marked {
            return;
        }
        (self.round, self.round_marked) = (high.max(una + 1), true);
        self.alpha += (ALPHA_ONE - self.alpha) / ALPHA_GAIN;
        let less = self.size - self.size * self.alpha / (2 * ALPHA_ONE);
        self.size = less.max(RESTART * (mtu + OVERHEAD)).min(self.max);
        self.threshold = self.size;
        self.resized(mtu);
    }
    fn resized(&mut self, mtu: u64) {
        // Few ACKs keep runs long; in a small window the loss of the only one would leave silence.
        let every = if self.size < INITIAL { self.packets(mtu) / 2 } else { ACK_REQ_EVERY };
        self.ack_every = every.clamp(1, ACK_REQ_EVERY) as u32;
    }
    /// Of how many packets of a long message one asks for an ACK.
    pub(super) fn ack_every(&self) -> u32 {
        self.ack_every
    }
    /// Packets of `mtu` bytes that fit.
    pub(super) fn packets(&self, mtu: u64) -> u64 {
        self.size / (mtu + OVERHEAD)
    }
}
