//! Before the local ACK timeout: what tells a loss that draws no NAK, and when a second NAK is not
//! an echo of the first.
//!
//! The timeout T counts in tens of milliseconds, while a round trip takes some microseconds. Who
//! waits for T whenever the last packet of a burst, its ACK, or a packet sent again is lost has no
//! throughput left at a loss of a few percent. So the requester measures round trips, and after
//! several of them without an answer it sends again from the oldest unacknowledged packet, little
//! at first. To the responder this is a retry like others, and a duplicate if only the answer was
//! lost. It does not count against `retry_cnt`: that many timeouts T still pass before the request
//! fails.
use crate::time::Time;
use core::time::Duration;

/// Wait at least so long: a peer in software answers when it is scheduled.
const SHORTEST: u64 = 1_000_000;
/// Doublings of the wait.
const MOST_DOUBLINGS: u32 = 10;

#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Smoothed round trip and its variation (RFC 6298), in nanoseconds; the shortest.
    srtt: u64,
    variation: u64,
    shortest: u64,
    /// A request under way: when it was sent. Its acknowledgement gives a sample.
    sample: Option<(u64, Time)>,
    at: Option<Time>,
    /// Probes since there was progress.
    sent: u32,
    /// When it was last sent again from an earlier packet on.
    restarted: Time,
}

impl Probe {
    pub(super) fn due(&self) -> Option<Time> {
        self.at
    }

    /// The packet with this PSN, which asks for an answer, leaves for the first time.
    #[inline]
    pub(super) fn asked(&mut self, psn: u64, now: Time) {
        if self.sample.is_none() {
            self.sample = Some((psn, now));
        }
    }

    /// The wait begins.
    pub(super) fn arm(&mut self, now: Time, timeout: Option<Duration>) {
        self.at = match timeout {
            // Without a round trip known, or without any timer, there is nothing to go by.
            Some(longest) if self.srtt > 0 => {
                let wait = (self.srtt + 4 * self.variation).max(SHORTEST) << self.sent.min(MOST_DOUBLINGS);
                Some(now + Duration::from_nanos(wait).min(longest))
            }
            _ => None,
        };
    }

    pub(super) fn disarm(&mut self) {
        self.at = None;
        self.sample = None;
    }

    /// Everything before `una` is acknowledged; more is under way, or not.
    pub(super) fn progress(&mut self, una: u64, now: Time, timeout: Option<Duration>, more: bool) {
        if let Some((psn, at)) = self.sample
            && una > psn
        {
            self.measured(now.since(at).as_nanos() as u64);
            self.sample = None;
        }
        self.sent = 0;
        if more {
            self.arm(now, timeout);
        } else {
            self.at = None;
        }
    }

    fn measured(&mut self, took: u64) {
        let took = took.max(1);
        if self.srtt == 0 {
            (self.srtt, self.variation, self.shortest) = (took, took / 2, took);
            return;
        }
        self.variation += took.abs_diff(self.srtt) / 4;
        self.variation -= self.variation / 4;
        self.srtt = self.srtt - self.srtt / 8 + took / 8;
        self.shortest = self.shortest.min(took);
    }

    /// The peer told of a loss, so it goes back to an earlier packet. A packet sent twice is no
    /// measure (Karn).
    pub(super) fn restarted(&mut self, now: Time, timeout: Option<Duration>) {
        self.sent = 0;
        self.again(now, timeout);
    }

    fn again(&mut self, now: Time, timeout: Option<Duration>) {
        self.restarted = now;
        self.sample = None;
        self.arm(now, timeout);
    }

    /// Nothing was heard: the next wait is twice as long.
    pub(super) fn unheard(&mut self, now: Time, timeout: Option<Duration>) {
        self.sent += 1;
        self.again(now, timeout);
    }

    /// Could what arrives now answer what was sent again?
    pub(super) fn may_answer(&self, now: Time) -> bool {
        self.srtt > 0 && now.since(self.restarted).as_nanos() as u64 > self.shortest
    }
}
