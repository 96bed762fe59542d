//! The flow window: how much may be unacknowledged.
//!
//! RoCE counts on a lossless network. Its only window is the end-to-end credits, which say nothing
//! about bytes. Here packets cross socket buffers and routers, which drop packets. The window grows
//! with acknowledgements and shrinks with losses as TCP's window does (RFC 5681, once for all
//! losses of a window as in RFC 6582). The upper bound is `QpConfig::max_inflight`. Congestion
//! notifications shrink the window by their frequency, as they shrink DCQCN's rate: `alpha` follows
//! the share of round trips with a notification.

/// The cost of a packet in a socket buffer beside its payload: headers and the kernel's bookkeeping
/// (about a `sk_buff`).
pub(super) const OVERHEAD: u64 = 768;
/// Initial size in bytes.
const INITIAL: u64 = 64 * 1024;
/// Size in packets after a silence (`RESTART`), and least size after a loss (`LEAST`). Both are
/// small enough for a small router. `LEAST` is large enough for the peer to notice most losses by a
/// later packet.
const RESTART: u64 = 2;
const LEAST: u64 = 4;
/// Most packets of a long message from one ACK request to the next. Each window contains at least
/// two ACK requests.
const ACK_REQ_EVERY: u64 = 16;
/// The value of `alpha` when every round trip has a notification.
const ALPHA_ONE: u64 = 1024;
/// `alpha` moves by this part of its distance in each round trip.
const ALPHA_GAIN: u64 = 16;

#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    /// Below the threshold the window grows by the acknowledged cost, above by one packet a round
    /// trip.
    threshold: u64,
    max: u64,
    /// Losses before this PSN have already shrunk the window.
    recovered: u64,
    /// Size and threshold before a silence, until the cause of the silence is known.
    before: Option<(u64, u64)>,
    /// The amount of congestion, in parts of [`ALPHA_ONE`]. Valid from the first notification on.
    alpha: u64,
    notified: bool,
    /// PSN at which the current round trip ends; was there a notification in this round trip?
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
    /// A window without bounds.
    pub(super) fn open() -> Self {
        Window { size: u64::MAX / 2, ..Window::new(0) }
    }
    fn is_open(&self) -> bool {
        self.max == 0
    }
    /// May a packet of this cost be sent? With nothing in flight, always.
    pub(super) fn admits(&self, in_flight: u64, cost: u64) -> bool {
        in_flight == 0 || in_flight + cost <= self.size
    }
    /// The cost `acked` was acknowledged, up to the PSN `una`. With `beyond` the acknowledgement
    /// covers packets that were due to be sent again and were not yet.
    pub(super) fn progress(&mut self, acked: u64, mtu: u64, una: u64, high: u64, beyond: bool) {
        if let Some((size, threshold)) = self.before.take()
            && beyond
        {
            // Packets were late and not lost (the case that RFC 5682 detects).
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
    /// A packet was lost and later packets arrived.
    pub(super) fn lost(&mut self, mtu: u64, una: u64, high: u64) {
        if una < self.recovered || self.is_open() {
            return;
        }
        self.recovered = high;
        self.size = (self.size / 2).max(LEAST * (mtu + OVERHEAD)).min(self.max);
        self.threshold = self.size;
        self.resized(mtu);
    }
    /// No answer came for too long.
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
    /// The network is congested. The window shrinks once a round trip.
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
        // Few ACK requests keep GSO runs long. In a small window the loss of a single ACK request
        // would leave silence.
        let every = if self.size < INITIAL { self.packets(mtu) / 2 } else { ACK_REQ_EVERY };
        self.ack_every = every.clamp(1, ACK_REQ_EVERY) as u32;
    }
    /// One of so many packets of a long message asks for an ACK.
    pub(super) fn ack_every(&self) -> u32 {
        self.ack_every
    }
    /// How many packets of `mtu` bytes fit.
    pub(super) fn packets(&self, mtu: u64) -> u64 {
        self.size / (mtu + OVERHEAD)
    }
}
