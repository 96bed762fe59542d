//! The flow window: how much may be unacknowledged.
//!
//! RoCE counts on a lossless network. Its only window is the end-to-end credits, which say nothing
//! about bytes. Here packets cross socket buffers and routers, which drop packets. The window grows
//! with acknowledgements and shrinks with losses as TCP's window does (RFC 5681, once for all
//! losses of a window as in RFC 6582). Congestion notifications shrink the window by their
//! frequency, as they shrink DCQCN's rate: `alpha` follows the share of round trips with a
//! notification.
//!
//! Up to [`BUFFER`] the window grows without a reason, because every receiver's socket buffer holds
//! so much. A larger window needs [`Evidence`] that it delivers proportionally more. Otherwise the
//! window stops or shrinks. So the window of a long line becomes the line's bandwidth times its
//! round trip, and the window on one host stays small.
use super::evidence::{BUFFER, Evidence, Finding};
use adverb_wire::Time;
use bursts::Bursts;
use core::time::Duration;
use doubt::Doubt;
use notices::Notices;

mod bursts;
mod doubt;
mod notices;

/// The cost of a packet in a socket buffer beside its payload: headers and the kernel's bookkeeping
/// (about a `sk_buff`).
pub(super) const OVERHEAD: u64 = 768;
/// Initial size in bytes. Round trips of less in flight are no evidence.
const INITIAL: u64 = 64 * 1024;
/// Size in packets after a silence: small enough for a small router.
const RESTART: u64 = 2;
/// Least size in packets after a loss: small enough for a small router, and large enough for the
/// peer to notice most losses by a later packet.
const LEAST: u64 = 4;
/// Most packets of a long message from one ACK request to the next. Each window contains at least
/// two ACK requests.
const ACK_REQ_EVERY: u64 = 16;
/// The same after a loss. The packets that one ACK releases fit into a small router.
const AFTER_LOSS: u64 = 4;
/// Above [`BUFFER`] and before the first queue, the window doubles in each round trip up to half of
/// the window that fills the line, and grows by half up to all of it. Beyond, it grows by this part
/// of the acknowledged cost. A full line is noticed a round trip late, and the packets sent
/// meanwhile have to fit into a router.
const BEYOND: u64 = 8;
/// Where the rate of the line is not known, the window grows by this part of the acknowledged cost.
const SEARCH: u64 = 3;
/// After the first queue the window grows by so many bytes in each round trip without a queue. The
/// constant makes the windows of several senders alike.
const STEP: u64 = BUFFER / 8;
/// How much a queue pair may have in flight.
#[derive(Debug)]
pub(super) struct Window {
    size: u64,
    /// Below the threshold the window grows exponentially, above by a constant in a round trip.
    threshold: u64,
    max: u64,
    /// Losses before this PSN have already shrunk the window.
    recovered: u64,
    /// Size and threshold before a silence, until the cause of the silence is known.
    before: Option<(u64, u64)>,
    /// Size, threshold and doubt before the last loss, if that loss has shrunk the window.
    whole: Option<(u64, u64, Doubt)>,
    notices: Notices,
    /// One of so many packets of a long message asks for an ACK.
    pub(super) ack_every: u32,
    bursts: Bursts,
    evidence: Evidence,
    doubt: Doubt,
}

/// An acknowledgement, as the window sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    /// The acknowledged cost.
    pub(super) acked: u64,
    /// The cost in flight before.
    pub(super) in_flight: u64,
    pub(super) mtu: u64,
    pub(super) una: u64,
    pub(super) high: u64,
    pub(super) now: Time,
    /// The acknowledgement covers packets that were due to be sent again and were not yet.
    pub(super) beyond: bool,
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
            whole: None,
            notices: Notices::default(),
            ack_every: ACK_REQ_EVERY as u32,
            bursts: Bursts::new(BUFFER),
            evidence: Evidence::default(),
            doubt: Doubt::default(),
        }
    }
    /// A window without bounds.
    pub(super) fn open() -> Self {
        Window { size: u64::MAX / 2, bursts: Bursts::new(u64::MAX / 2), ..Window::new(0) }
    }
    fn is_open(&self) -> bool {
        self.max == 0
    }
    /// May a packet of this cost be sent? With nothing in flight, always.
    #[inline]
    pub(super) fn admits(&self, in_flight: u64, cost: u64) -> bool {
        in_flight == 0 || in_flight + cost <= self.size && self.bursts.admit(in_flight, cost)
    }
    /// May a part of a READ be requested whose responses have this cost? An acknowledgement
    /// releases a long part, too.
    pub(super) fn admits_part(&self, in_flight: u64, cost: u64) -> bool {
        in_flight == 0 || in_flight + cost <= self.size && self.bursts.admit_part(in_flight, cost)
    }
    /// An acknowledgement has come, or the requester goes back. `in_flight` is the cost that is
    /// still on its way. At most `most` more may leave now. If that is less than fits the window,
    /// and `now` is given, the rest leaves later, at twice the window's rate.
    #[inline]
    pub(super) fn release(&mut self, in_flight: u64, most: u64, now: Option<Time>) {
        if self.is_open() {
            return;
        }
        let most = if self.size > BUFFER { most.clamp(INITIAL, BUFFER) } else { BUFFER };
        let more_at = now.filter(|_| in_flight + most < self.size).map(|now| {
            let wait = self.evidence.recent * most / self.size / 2;
            now + Duration::from_nanos(wait)
        });
        self.bursts.release(in_flight, most, more_at);
    }
    /// When [`Window::release_more`] has to be called.
    #[inline]
    pub(super) fn more_due(&self) -> Option<Time> {
        self.bursts.more_at
    }
    /// Time has passed: more may leave without an acknowledgement.
    pub(super) fn release_more(&mut self, in_flight: u64, mtu: u64, now: Time) {
        if self.more_due().is_some_and(|at| at <= now) {
            let used = !self.bursts.admit(in_flight, mtu + OVERHEAD);
            self.release(in_flight, BUFFER, used.then_some(now));
        }
    }
    /// Packets were acknowledged.
    pub(super) fn progress(&mut self, p: &Progress) {
        let Progress { mtu, una, .. } = *p;
        let wary = self.is_wary();
        self.doubt.acknowledged(p.acked, self.size);
        if wary {
            self.resized(mtu);
        }
        self.evidence.delivered(p.acked, p.now);
        if let Some((size, threshold)) = self.before.take()
            && p.beyond
        {
            // Packets were late and not lost (the case that RFC 5682 detects), or a single packet
            // was lost before packets that the peer keeps.
            let less = size.min(BUFFER).max(size - size * 3 / 10);
            (self.size, self.threshold, self.recovered) = (less, threshold, una);
            self.doubt.limit();
        }
        self.notices.progress(una, p.high);
        if self.size >= self.max {
            return;
        }
        let more = self.growth(p);
        if more > 0 {
            self.size = (self.size + more).min(self.max);
            self.resized(mtu);
        }
    }
    fn growth(&self, p: &Progress) -> u64 {
        let part = |all: u64| (all * p.acked / self.size.max(1)).max(1);
        match (self.size < BUFFER, self.size < self.threshold) {
            (true, true) => p.acked.min(BUFFER - self.size),
            (true, false) => part(p.mtu + OVERHEAD).min(BUFFER - self.size),
            (false, _) if !self.may_exceed(p) => 0,
            (false, true) => match self.evidence.line() {
                None => p.acked / SEARCH,
                Some(line) if self.size < line / 2 => p.acked,
                Some(line) if self.size < line => p.acked / 2,
                Some(_) => p.acked / BEYOND,
            },
            (false, false) => part(STEP),
        }
    }
    /// May the window grow above [`BUFFER`]? A window that is not used says nothing.
    fn may_exceed(&self, p: &Progress) -> bool {
        self.evidence.carries() == Some(true) && !self.is_wary() && p.in_flight >= self.size / 2
    }
    /// A round trip took `took` nanoseconds while `in_flight` was on its way.
    pub(super) fn measured(&mut self, took: u64, p: &Progress) {
        if self.is_open() || p.in_flight < BUFFER.min(self.max) / 2 {
            return;
        }
        match self.evidence.measured(took, p.now, self.size, [p.una, p.high]) {
            Some(Finding::Stale) if self.size > BUFFER => {
                (self.threshold, self.size) = (self.size, BUFFER);
            }
            Some(Finding::Queue) => {
                self.size = (self.size - self.size / 8).max(BUFFER);
                self.threshold = self.threshold.min(self.size);
                self.doubt.wary = 0;
            }
            _ => return,
        }
        self.resized(p.mtu);
    }
    /// A packet was lost and later packets arrived.
    pub(super) fn lost(&mut self, mtu: u64, una: u64, high: u64) {
        if una < self.recovered || self.is_open() {
            self.whole = None;
            return;
        }
        self.recovered = high;
        self.whole = Some((self.size, self.threshold, self.doubt));
        self.doubt.arise(self.size);
        let alone = self.evidence.carries() == Some(true) && self.size > BUFFER;
        let less = if alone { self.size * 3 / 10 } else { self.size / 2 };
        self.size = (self.size - less).max(LEAST * (mtu + OVERHEAD)).min(self.max);
        self.threshold = self.size;
        self.resized(mtu);
    }
    /// The last packet taken for lost was only late.
    pub(super) fn was_late(&mut self, mtu: u64) {
        if let Some((size, threshold, doubt)) = self.whole.take()
            && size > self.size
        {
            (self.size, self.threshold) = (size, threshold);
            self.doubt.restore(doubt);
            self.resized(mtu);
        }
    }
    /// No answer arrived for too long.
    pub(super) fn silent(&mut self, mtu: u64, high: u64) {
        if self.is_open() {
            return;
        }
        let small = (RESTART * (mtu + OVERHEAD)).min(self.max);
        self.before.get_or_insert((self.size, self.threshold));
        self.doubt.renew();
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
        let Some(less) = self.notices.take(self.size, una, high) else { return };
        self.doubt.arise(self.size);
        self.size = less.max(RESTART * (mtu + OVERHEAD)).min(self.max);
        self.threshold = self.size;
        self.resized(mtu);
    }
    fn resized(&mut self, mtu: u64) {
        // Few ACK requests keep GSO runs long. In a small window the loss of a single ACK request
        // would leave silence.
        let every = if self.size < INITIAL { self.packets(mtu) / 2 } else { ACK_REQ_EVERY };
        // Where routers notify, they see to bursts.
        let most =
            if self.is_wary() && !self.notices.are_given() { AFTER_LOSS } else { ACK_REQ_EVERY };
        self.ack_every = every.clamp(1, most) as u32;
    }
    /// A loss or a notification happened not long ago: bursts have to be short.
    pub(super) fn is_wary(&self) -> bool {
        self.doubt.is_wary()
    }
    /// How many packets of `mtu` bytes fit.
    pub(super) fn packets(&self, mtu: u64) -> u64 {
        self.size / (mtu + OVERHEAD)
    }
}

#[cfg(test)]
mod tests;
