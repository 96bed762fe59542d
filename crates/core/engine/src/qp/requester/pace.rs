//! The requester's pace when the network loses packets: early restarts, smaller READs, congestion
//! notifications.
use super::evidence::BUFFER;
use super::state::{ReadReq, Requester};
use super::window;
use crate::attr::QpAttr;
use crate::qp::QpConfig;
use crate::qp::counters::Counters;
use adverb_wire::Time;
use core::time::Duration;

/// Most parts of READs under way.
const MOST_PARTS: u64 = 16;
/// Greatest cost of a part.
const LONGEST_PART: u64 = 1 << 20;
/// Length of a UDP datagram over IPv4. Segmentation offload makes packets of equal length of it.
const RUN: u64 = 65_507;
/// Header and ICRC of a middle response.
const MIDDLE: u64 = 16;
/// Responses of a part that leave together: the last of the part before, the first, and the second.
/// First and last have a longer header, and only the last packet of a run may be shorter.
const ENDS: u64 = 3;

impl Requester {
    /// Sends a probe if the wait is over. This wait is shorter than the local ACK timeout.
    pub(super) fn probe_if_due(&mut self, now: Time, counters: &mut Counters) {
        if self.probe.due.is_some_and(|t| t <= now) {
            counters.probes += 1;
            self.unheard(now);
        }
    }

    /// The longest wait for a probe. `None` where no packet is lost on the way.
    pub(super) fn probe_within(&self) -> Option<Duration> {
        self.timeout.filter(|_| self.own_mtu.is_none())
    }

    /// No answer arrived: sends again from the oldest unacknowledged packet, few packets at first.
    pub(super) fn unheard(&mut self, now: Time) {
        self.window.silent(self.mtu, self.high);
        self.recovering = None;
        self.go_back(self.una);
        self.probe.unheard(now, self.probe_within());
    }

    /// The network marked packets on their way to the peer, or the peer's answers.
    pub(crate) fn congested(&mut self) {
        self.window.congested(self.mtu, self.una, self.high);
    }

    /// Sets how many packets of READ response one request asks for, and how many such parts may be
    /// under way.
    pub(super) fn start_parts(&mut self, config: &QpConfig, attr: &QpAttr) {
        self.parts = u64::from(attr.max_rd_atomic).clamp(1, MOST_PARTS);
        let most = u64::from(config.max_inflight).min(LONGEST_PART) / (self.mtu + window::OVERHEAD);
        self.read_part = (most / self.parts.min(2)).max(1);
    }

    /// Most packets of the next part: a share of the window. Two parts keep the path busy if they
    /// are short. In a larger window more parts keep the path busy, because the responder sends a
    /// part in one burst. A retry may ask for the rest of an earlier request, and not for more
    /// (IBTA 9.7.5.1.4). So the part ends at or before the end of an earlier request.
    pub(super) fn part(&self) -> u64 {
        let psn = self.cur.psn;
        let window = self.window.packets(self.mtu);
        if psn >= self.high {
            let short = BUFFER / 2 / (self.mtu + window::OVERHEAD);
            let short = if self.window.is_wary() { short / 2 } else { short };
            let part = (window / self.parts).max(short.min(window / self.parts.min(2)));
            return whole_runs(part.clamp(1, self.read_part), self.mtu);
        }
        let end =
            self.asked.iter().map(|(end, _)| *end).find(|end| *end > psn).unwrap_or(self.high);
        // All of the rest if it fits, because only later packets wait then. A quarter of the window
        // stays free for routers that cannot buffer a burst.
        (window * 3 / 4).clamp(1, end - psn)
    }

    /// Must the cursor wait for the last requested part, because both parts were one request
    /// before? A responder may remember only the last repetition of a request, and then drop a part
    /// that begins earlier (rxe does). So parts of one request go one after the other, and no part
    /// begins before an earlier requested part.
    pub(super) fn waits_for_part(&self) -> bool {
        let psn = self.cur.psn;
        self.cur.at > 0
            && self.reads.back().is_some_and(|r| r.end == psn && !r.fresh)
            && !self.asked.contains(&(psn, true))
    }

    /// Notes that this READ will be requested again.
    pub(super) fn ask_again(&mut self, read: ReadReq) {
        let una = self.una;
        self.asked.retain(|(end, _)| *end > una);
        match self.asked.binary_search_by_key(&read.end, |(end, _)| *end) {
            Ok(at) => self.asked[at].1 |= read.fresh,
            Err(at) => self.asked.insert(at, (read.end, read.fresh)),
        }
    }
}

/// Shortens a part so that its middle responses fill their runs. A short run costs the responder
/// nearly as much as a whole run.
fn whole_runs(part: u64, mtu: u64) -> u64 {
    let run = (RUN / (mtu + MIDDLE)).max(1);
    match part.checked_sub(ENDS) {
        Some(middle) if middle >= run => middle - middle % run + ENDS,
        _ => part,
    }
}

#[cfg(test)]
mod tests {
    use super::whole_runs;

    #[test]
    fn the_middle_of_a_part_fills_its_runs() {
        assert_eq!(
            [1, 17, 18, 20, 32, 33, 47].map(|part| whole_runs(part, 4096)),
            [1, 17, 18, 18, 18, 33, 33]
        );
        assert_eq!([54, 66, 100].map(|part| whole_runs(part, 1024)), [54, 65, 65]);
    }
}
