//! Loss detection before the local ACK timeout: finds losses that draw no NAK, and tells a second
//! NAK from an echo of the first.
//!
//! The timeout T is tens of milliseconds, while a round trip takes some microseconds. If the last
//! packet of a burst, its ACK, or a retransmission is lost, no NAK comes. A requester that waits
//! for T each time has no throughput left at a loss of a few percent.
//!
//! So the requester measures round trips. After several round trips without an answer, the
//! requester sends again from the oldest unacknowledged packet, few packets at first. To the
//! responder this is an ordinary retry, or a duplicate if only the answer was lost. A probe does
//! not count against `retry_cnt`: as many timeouts T still pass before the request fails.
use adverb_wire::Time;
use core::time::Duration;

/// Shortest wait in nanoseconds. A peer in software answers when it is scheduled.
const SHORTEST: u64 = 1_000_000;
/// Most doublings of the wait.
const MOST_DOUBLINGS: u32 = 10;
/// Most samples of the round trip under way.
pub(super) const SAMPLES: usize = 8;

/// A request under way: its PSN and departure.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    psn: u64,
    sent: Time,
    /// Goes into the smoothed round trip. One sample in a round trip does, so that the variation
    /// does not shrink with the number of samples.
    leads: bool,
}

#[derive(Debug, Default)]
pub(super) struct Probe {
    /// Smoothed round trip and its variation (RFC 6298), and the shortest round trip, in
    /// nanoseconds.
    srtt: u64,
    variation: u64,
    shortest: u64,
    /// Requests under way, from `first` on. Their acknowledgements give samples.
    samples: [Sample; SAMPLES],
    first: usize,
    count: usize,
    /// One of the samples leads.
    led: bool,
    /// The first PSN that may be the next sample.
    next: u64,
    /// When to send the next probe.
    pub(super) due: Option<Time>,
    /// Probes since the last progress.
    sent: u32,
    /// When the requester last went back to an earlier packet.
    restarted: Time,
}

impl Probe {
    /// The packet with this PSN leaves for the first time and asks for an answer. At most one of
    /// `every` packets gives a sample.
    #[inline]
    pub(super) fn asked(&mut self, psn: u64, now: Time, every: u64) {
        if self.count < SAMPLES && psn >= self.next {
            let sample = Sample { psn, sent: now, leads: !self.led };
            self.samples[(self.first + self.count) % SAMPLES] = sample;
            self.count += 1;
            (self.led, self.next) = (true, psn + every);
        }
    }

    /// No packet under way gives a sample.
    fn forget(&mut self) {
        (self.count, self.led, self.next) = (0, false, 0);
    }

    /// The wait begins.
    pub(super) fn arm(&mut self, now: Time, timeout: Option<Duration>) {
        self.due = match timeout {
            // Without a measured round trip, or with the timer disabled, the wait is unknown.
            Some(longest) if self.srtt > 0 => {
                let wait =
                    (self.srtt + 4 * self.variation).max(SHORTEST) << self.sent.min(MOST_DOUBLINGS);
                Some(now + Duration::from_nanos(wait).min(longest))
            }
            _ => None,
        };
    }

    pub(super) fn disarm(&mut self) {
        self.due = None;
        self.forget();
    }

    /// All packets before `una` are acknowledged. `more` says whether other packets are under way.
    /// Returns the last measured round trip, in nanoseconds.
    pub(super) fn progress(
        &mut self,
        una: u64,
        now: Time,
        timeout: Option<Duration>,
        more: bool,
    ) -> Option<u64> {
        let mut last = None;
        while self.count > 0 && self.samples[self.first].psn < una {
            let sample = self.samples[self.first];
            let took = (now.since(sample.sent).as_nanos() as u64).max(1);
            if sample.leads {
                self.measured(took);
                self.led = false;
            }
            last = Some(took);
            self.first = (self.first + 1) % SAMPLES;
            self.count -= 1;
        }
        self.sent = 0;
        if more {
            self.arm(now, timeout);
        } else {
            self.due = None;
        }
        last
    }

    fn measured(&mut self, took: u64) {
        if self.srtt == 0 {
            (self.srtt, self.variation, self.shortest) = (took, took / 2, took);
            return;
        }
        self.variation += took.abs_diff(self.srtt) / 4;
        self.variation -= self.variation / 4;
        self.srtt = self.srtt - self.srtt / 8 + took / 8;
        self.shortest = self.shortest.min(took);
    }

    /// The peer reported a loss, so the requester goes back to an earlier packet. A packet sent
    /// twice gives no sample (Karn's algorithm).
    pub(super) fn restarted(&mut self, now: Time, timeout: Option<Duration>) {
        self.sent = 0;
        self.again(now, timeout);
    }

    fn again(&mut self, now: Time, timeout: Option<Duration>) {
        self.restarted = now;
        self.forget();
        self.arm(now, timeout);
    }

    /// No answer arrived: the next wait is twice as long.
    pub(super) fn unheard(&mut self, now: Time, timeout: Option<Duration>) {
        self.sent += 1;
        self.again(now, timeout);
    }

    /// Can a packet that arrives now be an answer to the retransmission?
    pub(super) fn may_answer(&self, now: Time) -> bool {
        self.srtt > 0 && now.since(self.restarted).as_nanos() as u64 > self.shortest
    }

    /// Is a packet that arrives now certainly no answer to a packet sent at this time? The shortest
    /// measured round trip may contain a queue.
    pub(super) fn is_too_early(&self, sent: Time, now: Time) -> bool {
        (now.since(sent).as_nanos() as u64) < self.shortest / 2
    }
}
