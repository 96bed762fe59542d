//! Evidence that the path carries a larger window: a larger window that delivers proportionally
//! more.
//!
//! A window divided by the round trip is the rate at which the path delivers. So a larger window
//! delivers proportionally more as long as the round trip stays that of a small window. A longer
//! round trip means that packets wait in a queue, in a router or in the peer's socket buffer.
//!
//! The round trip of a small window is its shortest one. Under jitter a single round trip says
//! little. There the typical round trip of a small window counts, and its variation is allowed. It
//! may also grow with the number of packets on their way, because a packet waits for all earlier
//! ones. So under jitter a window of twice the size that delivers clearly more is accepted, too,
//! and larger ones are compared with it.
use adverb_wire::Time;
use core::time::Duration;

/// The size that the default receive buffer of a Linux UDP socket (208 KiB) holds. At most so much
/// leaves at once, from one acknowledgement to the next. A window of this size is small.
pub(super) const BUFFER: u64 = 192 * 1024;
/// So many round trips make the evidence. A single one may be long because the peer did not run.
const FEWEST: u32 = 8;
/// The typical round trip is the mean of about so many.
const TYPICAL: u32 = 64;
/// The recent round trip is the mean of about so many.
const RECENT: u64 = 4;
/// A round trip longer than the accepted one by this part counts as longer.
const LONGER: u64 = 8;
/// A round trip longer than the accepted one by at most this part counts as equal.
const EQUAL: u64 = 16;
/// A variation below this part of the round trip counts as none.
const STEADY: u64 = 16;
/// Shorter round trips, in nanoseconds, vary with the two hosts and not with the path: on one host
/// they are the time of a receiver's socket buffer.
const HOSTS: u64 = 200_000;
/// The evidence is taken anew if for this time the typical round trip was longer.
const STALE: Duration = Duration::from_secs(1);
/// The rate of the line is measured over packets of this cost.
const TRAIN: u64 = 64 * 1024;

/// What the round trips of windows with much in flight say. Times are in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Number of measured round trips, up to [`TYPICAL`].
    count: u32,
    /// The shortest round trip.
    shortest: u64,
    /// The last round trip.
    last: u64,
    /// The shorter of the last two round trips. Only the first packets of a burst meet no queue.
    shorter: u64,
    /// Mean of the last [`RECENT`] round trips.
    pub(super) recent: u64,
    /// Mean of the last [`TYPICAL`] round trips.
    typical: u64,
    /// Mean difference of a round trip to the one before.
    variation: u64,
    /// The least typical round trip of the largest accepted window (0: unknown).
    accepted: u64,
    /// The variation of round trips then.
    accepted_variation: u64,
    /// The largest accepted window.
    accepted_window: u64,
    /// When the typical round trip last was the accepted one.
    fresh: Time,
    /// Acknowledged cost since the beginning of the train.
    train: u64,
    /// The beginning of the train.
    train_began: Time,
    /// The least time in which [`TRAIN`] was acknowledged (0: unknown).
    train_took: u64,
    /// Packets before this PSN are no evidence: they left before the evidence was taken anew.
    anew: u64,
    /// PSN at which the current round trip ends, while a queue is seen.
    queue: Option<u64>,
}

/// What a round trip shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The evidence is old, and is taken anew.
    Stale,
    /// A queue has lasted for a round trip.
    Queue,
}

/// Moves a mean to a sample by this part of their distance.
fn toward(mean: &mut u64, sample: u64, part: u64) {
    *mean = *mean - *mean / part + sample / part;
}

impl Evidence {
    /// A round trip to the packet before `una` took this time. `high` is the first PSN not sent.
    pub(super) fn measured(
        &mut self,
        took: u64,
        now: Time,
        window: u64,
        [una, high]: [u64; 2],
    ) -> Option<Finding> {
        if una < self.anew {
            return None;
        }
        if self.is_stale(now) {
            *self = Evidence { anew: high, queue: self.queue, ..Evidence::default() };
            return Some(Finding::Stale);
        }
        self.round_trip(took, now, window);
        if self.carries() != Some(false) || window <= BUFFER {
            self.queue = None;
            return None;
        }
        if self.queue.is_some_and(|end| una < end) {
            return None;
        }
        self.queue.replace(high).map(|_| Finding::Queue)
    }
    /// A round trip with this window took this time.
    fn round_trip(&mut self, took: u64, now: Time, window: u64) {
        if self.count < FEWEST && took < self.typical / 2 {
            // An earlier round trip was long for another reason.
            self.count = 0;
        }
        if self.count == 0 {
            (self.shortest, self.last, self.recent, self.typical) = (took, took, took, took);
            (self.variation, self.fresh) = (0, now);
        }
        self.count = (self.count + 1).min(TYPICAL);
        let part = u64::from(self.count);
        toward(&mut self.variation, took.abs_diff(self.last), part);
        toward(&mut self.typical, took, part);
        toward(&mut self.recent, took, RECENT);
        self.shorter = took.min(self.last);
        self.last = took;
        self.shortest = self.shortest.min(took);
        let first = self.accepted == 0 && window <= BUFFER && self.count >= FEWEST;
        let less = self.typical < self.accepted;
        // Under jitter: a window of twice the size that delivers at least a third more.
        let more = self.jitters()
            && window >= 2 * self.accepted_window
            && self.typical <= self.accepted + self.accepted / 2;
        if first || less || more {
            let before = if more { self.accepted_variation } else { 0 };
            (self.accepted, self.accepted_variation) = (self.typical, self.variation.max(before));
            if !less {
                self.accepted_window = window;
            }
        }
        if self.typical <= self.accepted + self.accepted / EQUAL {
            self.fresh = now;
        }
    }

    /// Packets of this cost were acknowledged.
    pub(super) fn delivered(&mut self, cost: u64, now: Time) {
        self.train += cost;
        if self.train_began == Time::ZERO {
            (self.train, self.train_began) = (0, now);
        } else if self.train >= TRAIN {
            let took = now.since(self.train_began).min(STALE).as_nanos() as u64;
            let took = (took * TRAIN / self.train).max(1);
            self.train_took = if self.train_took == 0 { took } else { self.train_took.min(took) };
            (self.train, self.train_began) = (0, now);
        }
    }

    /// Does a larger window deliver proportionally more? `None`: not known.
    pub(super) fn carries(&self) -> Option<bool> {
        let longer = |time: u64| time + time / LONGER;
        let carries = if self.jitters() {
            let jitter = (2 * self.accepted_variation).min(self.accepted / 2);
            self.recent <= longer(self.accepted) + jitter
        } else {
            // The packets that one acknowledgement releases wait for each other.
            let burst =
                if self.shortest > HOSTS { self.train_took.min(self.shortest / 8) } else { 0 };
            self.shorter <= longer(self.shortest) + burst
        };
        (self.accepted > 0).then_some(carries)
    }

    /// The shortest round trip says nothing about the others, and they differ among each other. In
    /// a queue that other senders fill they do not.
    fn jitters(&self) -> bool {
        self.accepted > self.shortest + self.shortest / LONGER
            && self.accepted_variation > self.accepted / STEADY
            && self.accepted > HOSTS
    }

    /// The window that fills the line at the rate at which short trains of packets arrive. `None`
    /// where the round trip varies, because trains vary there, too.
    pub(super) fn line(&self) -> Option<u64> {
        let known = self.accepted > 0
            && self.train_took > 0
            && self.accepted_variation <= self.accepted / STEADY;
        known.then(|| self.shortest * TRAIN / self.train_took)
    }

    /// Is it time to take the evidence anew?
    fn is_stale(&self, now: Time) -> bool {
        self.accepted > 0 && now.since(self.fresh) > STALE
    }
}

#[cfg(test)]
mod tests;
