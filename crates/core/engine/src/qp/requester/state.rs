//! The state of the requester and its changes: creation, RESET, RTS, new attributes, commit.
use super::probe::Probe;
use super::window::Window;
use crate::attr::QpAttr;
use crate::cause::Cause;
use crate::completion::WcStatus;
use crate::keys::KeyOp;
use crate::memory::Range;
use crate::qp::reorder::Reorder;
use crate::qp::send_queue::SendQueue;
use crate::qp::{Counters, QpConfig};
use crate::room::OutOfMemory;
use crate::types::QpType;
use crate::wr::{SendFlags, SendOp};
use adverb_wire::{Headers, Psn, Time, ack_timeout_ns};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

/// Lengthens a short local ACK timeout T. IBTA 9.7.6.1.3 allows a timeout between T and 4T. A peer
/// in software answers when it is scheduled, which takes milliseconds on a busy machine. So a T
/// below 20 ms becomes 20 ms or 4T, whichever is shorter.
fn patient(t: Duration) -> Duration {
    const SCHEDULED: Duration = Duration::from_millis(20);
    t.max(SCHEDULED.min(4 * t))
}

/// A plain ACK waits for a WRITE of at most so many packets.
const FEW: u64 = 64;

/// Unwrapped PSNs start in the second lap, so that subtracting from a PSN never underflows.
const FIRST_LAP: u64 = 1 << Psn::BITS;

/// Where the next packet comes from.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// Number of the request.
    pub(super) idx: u64,
    /// PSN of the next packet.
    pub(super) psn: u64,
    /// Bytes of the message before this packet, and the position of byte `at` in the scatter/gather
    /// list.
    pub(super) at: u64,
    pub(super) place: SgePosition,
}

/// A position in a scatter/gather list.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SgePosition {
    pub(super) sge: usize,
    pub(super) off: u32,
}

/// A request on the wire that needs more than an ACK: a READ (or a part of a READ), an atomic.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadReq {
    pub(super) idx: u64,
    /// PSN of the request and of its first response.
    pub(super) start: u64,
    /// PSN of the next response.
    pub(super) next: u64,
    pub(super) end: u64,
    /// No part of this READ was requested before.
    pub(super) fresh: bool,
}

/// A request that cannot go on. The request fails when all earlier requests have completed, so that
/// completions stay in order.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(super) idx: u64,
    pub(super) status: WcStatus,
    pub(crate) cause: Arc<Cause>,
}

/// The next action of the requester.
#[derive(Debug)]
pub(crate) enum Step {
    /// Send the packet described by `Requester::headers` and [`Requester::payload`].
    Packet,
    Key(KeyOp),
    Idle,
}

/// Payload of the packet just prepared.
#[derive(Clone, Copy, Debug)]
pub(super) enum Prepared {
    Inline { at: usize, len: usize },
    Gather,
}

#[derive(Debug)]
pub(crate) struct Requester {
    pub(in crate::qp) sq: SendQueue,
    pub(super) cur: Cursor,
    /// First request not started. Earlier requests have their PSNs.
    pub(super) next_start: u64,
    /// Oldest unacknowledged PSN, and the first PSN never sent.
    pub(in crate::qp) una: u64,
    pub(in crate::qp) high: u64,
    /// The same two positions as cost: of all acknowledged packets, and of all started requests.
    pub(super) pos_una: u64,
    pub(super) pos_next: u64,
    pub(super) window: Window,
    pub(super) probe: Probe,
    /// Answers that arrived before earlier answers.
    pub(in crate::qp) reorder: Reorder,
    pub(super) reads: VecDeque<ReadReq>,
    /// The position for the next READ response: of request `.0`, at byte `.1`.
    pub(super) sink: (u64, u64, SgePosition),
    /// Packets sent since the last packet with an ACK request.
    pub(super) since_ack_req: u32,
    /// PSN of the last restart, until there is progress. Further hints to restart at this PSN are
    /// echoes.
    pub(super) recovering: Option<u64>,
    /// When the requester first restarted at this PSN.
    pub(super) recovers: Time,
    pub(super) failure: Option<Failure>,
    /// Timeouts since the last progress.
    pub(in crate::qp) retries: u32,
    pub(super) rnr_retries: u32,
    pub(in crate::qp) ack_deadline: Option<Time>,
    pub(in crate::qp) rnr_until: Option<Time>,
    /// When the peer last answered.
    pub(super) last_heard: Option<Time>,
    /// Number of the request for which the host performs a key operation now.
    pub(super) key_op: Option<u64>,
    /// Headers of the packet just prepared.
    pub(in crate::qp) headers: Headers,
    pub(super) prepared: Prepared,
    /// Request of the packet just prepared.
    pub(super) prepared_idx: u64,
    pub(super) ranges: Vec<Range>,
    /// The peer's process has ended. From this time on unanswered requests fail.
    pub(super) peer_end: Option<Time>,
    /// Size of the pieces of a message, if not the path MTU.
    pub(super) own_mtu: Option<u32>,
    /// Longest frame of a raw packet queue pair.
    pub(in crate::qp) frame: u32,
    // Attributes in the form that the packet path needs.
    pub(super) mtu: u64,
    pub(super) timeout: Option<Duration>,
    pub(super) reliable: bool,
    /// Most packets of READ response in one READ request, and the most such parts that share the
    /// window.
    pub(super) read_part: u64,
    pub(super) parts: u64,
    /// Ends of READ requests that were given up to be sent again, and whether each was fresh.
    pub(super) asked: Vec<(u64, bool)>,
}

impl Requester {
    /// Oldest unacknowledged PSN, first PSN never sent, and the number of READs and atomics on
    /// their way.
    pub(crate) fn inside(&self) -> ([Psn; 2], usize) {
        ([self.una, self.high].map(|psn| Psn::new(psn as u32)), self.reads.len())
    }

    pub(crate) fn new(config: &QpConfig) -> Result<Self, OutOfMemory> {
        Ok(Requester {
            sq: SendQueue::new(config)?,
            cur: Cursor::default(),
            next_start: 0,
            una: FIRST_LAP,
            high: FIRST_LAP,
            pos_una: 0,
            pos_next: 0,
            window: Window::new(config.max_inflight),
            probe: Probe::default(),
            reorder: Reorder::default(),
            reads: VecDeque::new(),
            sink: (0, 0, SgePosition::default()),
            since_ack_req: 0,
            recovering: None,
            recovers: Time::ZERO,
            failure: None,
            retries: 0,
            rnr_retries: 0,
            ack_deadline: None,
            rnr_until: None,
            last_heard: None,
            key_op: None,
            headers: Headers::EMPTY,
            prepared: Prepared::Gather,
            prepared_idx: 0,
            ranges: Vec::with_capacity(config.cap.max_send_sge as usize),
            peer_end: None,
            own_mtu: None,
            frame: 0,
            mtu: config.port_mtu.bytes() as u64,
            timeout: None,
            reliable: config.qp_type.is_reliable(),
            read_part: 1,
            parts: 1,
            asked: Vec::new(),
        })
    }

    /// Packets of this queue pair cross no network until RESET. They may have `mtu` bytes, and no
    /// buffer in between overflows.
    pub(crate) fn leave_network(&mut self, config: &QpConfig, mtu: u32) {
        if !matches!(config.qp_type, QpType::Ud | QpType::RawPacket) {
            self.own_mtu = Some(mtu);
            self.mtu = u64::from(mtu);
            self.window = Window::open();
        }
    }

    /// May there be a packet to send, or a request to fail?
    #[inline]
    pub(crate) fn wants_output(&self) -> bool {
        // A UC or UD message is done when its last packet has left. The next poll finds this out.
        let left = !self.reliable && self.una != self.high;
        let more = self.cur.idx < self.sq.posted && self.peer_end.is_none();
        more || self.failure.is_some() || left
    }

    /// Does the next packet belong to a message of several packets, or ask for several (READ)? A
    /// rendezvous counts too, because its request is acknowledged before the final message comes.
    ///
    /// A WRITE of few packets with no request behind it does not count: its end is no completion at
    /// the peer, and the ACK leaves soon.
    pub(crate) fn is_at_long_message(&self) -> bool {
        self.cur.idx < self.sq.posted && {
            let wqe = self.sq.wqe(self.cur.idx);
            let is_last = self.cur.idx + 1 == self.sq.posted;
            let is_few = is_last && wqe.len <= self.mtu * FEW && matches!(wqe.op, SendOp::Write(_));
            wqe.len > self.mtu && !is_few || wqe.flags.contains(SendFlags::RENDEZVOUS)
        }
    }

    /// To RESET: all requests are forgotten.
    pub(crate) fn reset(&mut self, config: &QpConfig, counters: &mut Counters) {
        self.sq.clear();
        self.cur = Cursor::default();
        self.next_start = 0;
        self.own_mtu = None;
        self.peer_end = None;
        self.window = Window::new(config.max_inflight);
        self.probe = Probe::default();
        self.reorder.reset(counters);
        self.quiesce(counters);
    }

    /// RTR to RTS: sets the first PSN.
    pub(crate) fn start(&mut self, config: &QpConfig, attr: &QpAttr) {
        let psn = FIRST_LAP + u64::from(attr.sq_psn & Psn::MASK);
        self.una = psn;
        self.high = psn;
        self.cur.psn = psn;
        self.last_heard = None;
        self.update(config, attr);
        self.start_parts(config, attr);
    }

    /// Attributes changed.
    pub(crate) fn update(&mut self, config: &QpConfig, attr: &QpAttr) {
        let mtu = if config.qp_type == QpType::Ud { config.port_mtu } else { attr.path_mtu };
        self.mtu = self.own_mtu.map_or(mtu.bytes() as u64, u64::from);
        if config.qp_type == QpType::RawPacket {
            self.mtu = self.frame.into();
        }
        self.timeout = ack_timeout_ns(attr.timeout).map(|ns| patient(Duration::from_nanos(ns)));
        let wanted = usize::from(attr.max_rd_atomic);
        self.reads.reserve(wanted.saturating_sub(self.reads.len()));
    }

    /// Commits the staged requests.
    pub(crate) fn commit(&mut self) -> usize {
        let n = self.sq.staged - self.sq.posted;
        self.sq.posted = self.sq.staged;
        n as usize
    }

    /// Is a request committed and not completed?
    pub(crate) fn has_requests(&self) -> bool {
        self.sq.head < self.sq.posted
    }

    /// No started request is unfinished (SQD).
    pub(crate) fn is_drained(&self) -> bool {
        self.sq.head == self.next_start
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        if self.peer_end.is_some() {
            return self.peer_end.filter(|_| self.has_requests());
        }
        let due = Time::earliest(Time::earliest(self.ack_deadline, self.rnr_until), self.probe.due);
        let due = Time::earliest(due, self.window.more_due());
        if self.reorder.is_idle() { due } else { Time::earliest(due, self.reorder.due()) }
    }
}
