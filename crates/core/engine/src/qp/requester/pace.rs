//! How fast the requester goes when the network loses: early restarts, smaller READs, congestion
//! notifications.
use super::state::{ReadReq, Requester};
use super::window;
use crate::attr::QpAttr;
use crate::qp::QpConfig;
use crate::qp::counters::Counters;
use crate::time::Time;
use core::time::Duration;

impl Requester {
    /// The wait for an answer, shorter than the local ACK timeout, may be over.
    pub(super) fn probe_if_due(&mut self, now: Time, counters: &mut Counters) {
        if self.probe.due().is_some_and(|t| t <= now) {
            counters.probes += 1;
            self.unheard(now);
        }
    }

    /// The longest wait for a probe; none where nothing is lost on the way.
    pub(super) fn probe_within(&self) -> Option<Duration> {
        self.timeout.filter(|_| self.own_mtu.is_none())
    }

    /// No answer came: from the oldest unacknowledged packet again, a little at first.
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

    /// How many packets of READ response to ask for at a time: two such parts keep the path busy,
    /// if two are allowed.
    pub(super) fn start_parts(&mut self, config: &QpConfig, attr: &QpAttr) {
        self.parts = if attr.max_rd_atomic == 1 { 1 } else { 2 };
        let most = u64::from(config.max_inflight) / self.parts / (self.mtu + window::OVERHEAD);
        self.read_part = most.max(1);
    }

    /// Packets of the next part at most: a share of the window. A retry may ask for the rest of an
    /// earlier request, not for more (IBTA 9.7.5.1.4): it ends where one that was asked for before
    /// did, or earlier.
    pub(super) fn part(&self) -> u64 {
        let psn = self.cur.psn;
        let window = self.window.packets(self.mtu);
        if psn >= self.high {
            return (window / self.parts).clamp(1, self.read_part);
        }
        let end = self.asked.iter().map(|(end, _)| *end).find(|end| *end > psn).unwrap_or(self.high);
        // All of the rest if it fits, since then only what follows it waits. A quarter of the
        // window stays free for routers that cannot buffer a burst.
        (window * 3 / 4).clamp(1, end - psn)
    }

    /// Must the cursor wait for the part just asked for, as both were one request before? A
    /// responder may keep of a request only what was last asked for again, and from then on drop
    /// what begins before that (rxe does). So parts of one request go one after the other: none
    /// ever begins before one that was asked for earlier.
    pub(super) fn waits_for_part(&self) -> bool {
        let psn = self.cur.psn;
        self.cur.at > 0
            && self.reads.back().is_some_and(|r| r.end == psn && !r.fresh)
            && !self.asked.contains(&(psn, true))
    }

    /// This READ will be asked for again.
    pub(super) fn ask_again(&mut self, read: ReadReq) {
        let una = self.una;
        self.asked.retain(|(end, _)| *end > una);
        match self.asked.binary_search_by_key(&read.end, |(end, _)| *end) {
            Ok(at) => self.asked[at].1 |= read.fresh,
            Err(at) => self.asked.insert(at, (read.end, read.fresh)),
        }
    }
}
