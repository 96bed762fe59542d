//! Responses of the peer's responder: ACKs, NAKs, READ responses, old values of atomics (IBTA
//! 9.7.5, 9.7.6, 9.7.7).
use super::state::{ReadReq, Requester, SgePosition};
use super::window::Progress;
use crate::cause::Cause;
use crate::clock::Clock;
use crate::completion::WcStatus;
use crate::effects::Effects;
use crate::keys::KeyTable;
use crate::memory::Memory;
use crate::packet::Packet;
use crate::qp::context::QpCtx;
use crate::qp::counters::{Counters, DropReason};
use crate::qp::reorder::{Kept, Tell};
use crate::types::Access;
use crate::wr::SendOp;
use adverb_wire::{NakCode, Opcode, Operation, Psn, Syndrome, Time, rnr_timer_us};
use core::time::Duration;

/// Answer to a request that needs more than an ACK.
enum Answer<'a> {
    /// READ response First, Middle, Last or Only, and its payload.
    Data(Opcode, &'a [u8]),
    /// Old value of an atomic.
    Old(u64),
}

/// Why a response is not taken now.
enum Untaken {
    Dropped(DropReason),
    /// The response to this PSN has to come first.
    Early(u64),
}
type Taken = Result<(), Untaken>;

const STALE: Untaken = Untaken::Dropped(DropReason::Stale);
const GHOST: Untaken = Untaken::Dropped(DropReason::GhostResponse);

/// The environment of a step of the requester.
pub(crate) struct AnswerEnv<'a, 'b, M: ?Sized> {
    pub(crate) ctx: &'a QpCtx<'b>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) keys: &'a KeyTable,
    pub(crate) memory: &'a M,
    pub(crate) effects: &'a mut Effects,
    pub(crate) counters: &'a mut Counters,
}

fn nak_status(code: NakCode) -> (WcStatus, &'static str) {
    match code {
        NakCode::PsnSequence => (WcStatus::RemOpErr, "PSN sequence error"),
        NakCode::InvalidRequest => (WcStatus::RemInvReqErr, "invalid request"),
        NakCode::RemoteAccess => (WcStatus::RemAccessErr, "remote access error"),
        NakCode::RemoteOperational => (WcStatus::RemOpErr, "remote operational error"),
        NakCode::InvalidRdRequest => (WcStatus::RemInvRdReqErr, "invalid RD request"),
    }
}

impl Requester {
    /// Takes a response packet.
    pub(crate) fn handle_response<M: Memory + ?Sized>(
        &mut self,
        env: &mut AnswerEnv<'_, '_, M>,
        packet: &Packet<'_>,
    ) {
        if self.reorder.is_idle() {
            return self.take_response(env, packet);
        }
        let missing = self.missing();
        self.take_response(env, packet);
        if self.missing() != missing {
            self.reorder.filled(Psn::new(missing as u32), env.clock.now());
        }
    }

    /// The PSN of the response for which later responses wait.
    fn missing(&self) -> u64 {
        self.reads.front().map_or(self.una, |read| read.next)
    }

    /// Takes out the early response that is next in order. Early responses to finished requests are
    /// dropped.
    #[cold]
    pub(crate) fn take_turn(&mut self, now: Time, counters: &mut Counters) -> Option<Kept> {
        while let Some(headers) = self.reorder.first() {
            let psn = self.unwrapped(headers.bth.psn);
            if psn < self.high {
                let its_turn = match (self.reads.front(), headers.bth.opcode.operation()) {
                    // No earlier request needs more than an ACK.
                    (_, Operation::Acknowledge) => self.first_unanswered(psn).is_none(),
                    (Some(read), _) => read.next == psn,
                    (None, _) => false,
                };
                if its_turn {
                    return self.reorder.take_first(counters);
                }
                break;
            }
            self.reorder.drop_first(counters);
        }
        if self.reorder.was_filled() {
            let tell = self.reorder.settled(now);
            self.tell(tell, now, counters);
        }
        None
    }

    /// A deadline has come: a missing response may be lost.
    pub(super) fn early_due(&mut self, now: Time, counters: &mut Counters) {
        let tell = self.reorder.expired(now);
        self.tell(tell, now, counters);
    }

    /// Asks again for the missing response.
    fn tell(&mut self, tell: Tell, now: Time, counters: &mut Counters) {
        let missing = self.missing();
        let lost = tell != Tell::Nothing && missing < self.cur.psn && missing < self.high;
        if lost && self.restart(missing, now, tell == Tell::Again) {
            counters.implied_naks += 1;
        }
    }

    /// The unwrapped PSN of a response, which is at or after the oldest unacknowledged PSN.
    fn unwrapped(&self, psn: Psn) -> u64 {
        self.una + u64::from((psn - self.una as u32).get())
    }

    fn take_response<M: Memory + ?Sized>(
        &mut self,
        env: &mut AnswerEnv<'_, '_, M>,
        packet: &Packet<'_>,
    ) {
        let headers = &packet.headers;
        let psn = self.unwrapped(headers.bth.psn);
        if psn >= self.high {
            // The response belongs to a request acknowledged long ago, or to no request.
            let answers = headers.bth.opcode.operation() != Operation::Acknowledge;
            if answers && self.reorder.repeated(headers.bth.psn) {
                self.window.was_late(self.mtu);
            }
            env.counters.drop(DropReason::GhostResponse);
            return;
        }
        let syndrome = headers.aeth.map_or(Syndrome::ACK_NO_CREDITS, |a| a.syndrome);
        let taken = match (syndrome, headers.bth.opcode.operation()) {
            (Syndrome::Ack { .. }, Operation::Acknowledge) => self.ack(env, psn),
            (Syndrome::Ack { .. }, Operation::AtomicAcknowledge) => {
                let old = headers.atomic_ack.map_or(0, |a| a.original);
                self.answer(env, psn, &Answer::Old(old))
            }
            (Syndrome::Ack { .. }, _) => {
                self.answer(env, psn, &Answer::Data(headers.bth.opcode, packet.payload))
            }
            (Syndrome::RnrNak { timer }, Operation::Acknowledge) => self.rnr_nak(env, psn, timer),
            (Syndrome::Nak(code), Operation::Acknowledge) => self.nak(env, psn, code),
            _ => Err(Untaken::Dropped(DropReason::Malformed)),
        };
        match taken {
            Ok(()) => env.counters.answers = env.counters.answers.wrapping_add(1),
            Err(Untaken::Dropped(why)) => env.counters.drop(why),
            Err(Untaken::Early(missing)) => {
                let (missing, now) = (Psn::new(missing as u32), env.clock.now());
                let tell = self.reorder.early(missing, packet, now, env.counters);
                self.tell(tell, env.clock.now(), env.counters);
            }
        }
    }

    /// All packets before `to` are acknowledged. Answers `false` if they already were.
    fn progress<M: ?Sized>(&mut self, env: &mut AnswerEnv<'_, '_, M>, to: u64) -> bool {
        if to <= self.una {
            return false;
        }
        let now = env.clock.now();
        let beyond = self.cur.psn < to;
        if beyond && self.recovering.is_some() && self.probe.is_too_early(self.recovers, now) {
            // The acknowledgement is too early for an answer to the packets sent again.
            self.window.was_late(self.mtu);
        }
        let in_flight = self.flying();
        self.una = to;
        self.retries = 0;
        self.rnr_retries = 0;
        self.recovering = None;
        self.last_heard = Some(now);
        self.retire(env.ctx.config, env.effects);
        let before = self.pos_una;
        self.pos_una = if self.sq.head < self.next_start {
            let wqe = self.sq.wqe(self.sq.head);
            wqe.pos + to.saturating_sub(wqe.first) * (self.mtu + super::window::OVERHEAD)
        } else {
            self.pos_next
        };
        let acked = self.pos_una - before;
        let p = Progress { acked, in_flight, mtu: self.mtu, una: to, high: self.high, now, beyond };
        if let Some(took) = self.probe.progress(to, now, self.probe_within(), to < self.high) {
            self.window.measured(took, &p);
        }
        self.window.progress(&p);
        if beyond {
            self.seek(to);
        }
        let more = (self.cur.idx < self.sq.posted).then_some(now);
        self.window.release(self.flying(), if beyond { 0 } else { 2 * acked }, more);
        self.ack_deadline =
            if self.una == self.high { None } else { self.timeout.map(|t| now + t) };
        true
    }

    /// First PSN up to `psn` of a request that needs more than an ACK and has not got its response.
    fn first_unanswered(&self, psn: u64) -> Option<u64> {
        if let Some(read) = self.reads.front()
            && read.next <= psn
        {
            return Some(read.next);
        }
        // After a restart the requests from the cursor on are not in `reads`. Responses to their
        // first transmission may still come.
        let mut idx = self.cur.idx;
        while idx < self.next_start {
            let wqe = self.sq.wqe(idx);
            let from = wqe.first.max(self.cur.psn);
            if from > psn {
                break;
            }
            if wqe.op.needs_response() {
                return Some(from);
            }
            idx += 1;
        }
        None
    }

    /// Handles an ACK (also the ACK in a NAK) for all packets before `end`. An ACK may skip a
    /// request with a missing response. Answers how far the ACK really reaches, and whether there
    /// was progress.
    fn ack_before<M: ?Sized>(&mut self, env: &mut AnswerEnv<'_, '_, M>, end: u64) -> (u64, bool) {
        let to = self.first_unanswered(end - 1).unwrap_or(end);
        (to, self.progress(env, to))
    }

    fn ack<M: ?Sized>(&mut self, env: &mut AnswerEnv<'_, '_, M>, psn: u64) -> Taken {
        let (reached, told) = self.ack_before(env, psn + 1);
        if reached <= psn && reached < self.cur.psn {
            // The skipped response is late or lost.
            return Err(Untaken::Early(reached));
        }
        if told { Ok(()) } else { Err(STALE) }
    }

    /// As [`Requester::ack_before`]. If a NAK skips a response, the response was lost: an implied
    /// NAK (IBTA 9.7.7.2.2).
    fn nak_before<M: ?Sized>(&mut self, env: &mut AnswerEnv<'_, '_, M>, psn: u64) -> (u64, Taken) {
        let (reached, progress) = self.ack_before(env, psn);
        let lost = reached < psn
            && reached < self.cur.psn
            && self.restart(reached, env.clock.now(), false);
        if lost {
            env.counters.implied_naks += 1;
        }
        (reached, if progress || lost { Ok(()) } else { Err(STALE) })
    }

    /// Restarts at `psn` after a loss. A second restart at the same PSN needs progress or a timer
    /// in between, or a packet lost `again`.
    fn restart(&mut self, psn: u64, now: Time, again: bool) -> bool {
        if self.recovering != Some(psn) {
            self.recovers = now;
        } else if !(again && self.probe.may_answer(now)) {
            return false;
        }
        self.recovering = Some(psn);
        self.window.lost(self.mtu, self.una, self.high);
        self.go_back(psn);
        self.probe.restarted(now, self.probe_within());
        true
    }

    fn nak<M: ?Sized>(&mut self, env: &mut AnswerEnv<'_, '_, M>, psn: u64, code: NakCode) -> Taken {
        let (reached, told) = self.nak_before(env, psn);
        if reached < psn {
            return told;
        }
        if code == NakCode::PsnSequence {
            // During an RNR wait the responder discards the following packets, so this NAK is no
            // news.
            if self.rnr_until.is_none() && self.restart(psn, env.clock.now(), true) {
                env.counters.seq_naks += 1;
                return Ok(());
            }
            return told;
        }
        let (status, code) = nak_status(code);
        let (psn, dest_qpn) = (Psn::new(psn as u32).get(), env.ctx.attr.dest_qpn);
        self.fail(self.sq.head, status, Cause::RemoteNak { code, psn, dest_qpn });
        Ok(())
    }

    fn rnr_nak<M: ?Sized>(&mut self, env: &mut AnswerEnv<'_, '_, M>, psn: u64, timer: u8) -> Taken {
        let (reached, told) = self.nak_before(env, psn);
        if reached < psn || self.rnr_until.is_some() {
            return told;
        }
        env.counters.rnr_naks += 1;
        self.last_heard = Some(env.clock.now());
        let attr = env.ctx.attr;
        if attr.rnr_retry != 7 {
            if self.rnr_retries >= u32::from(attr.rnr_retry) {
                let cause = Cause::RnrRetryExceeded {
                    peer: attr.av.dgid,
                    dest_qpn: attr.dest_qpn,
                    psn: Psn::new(psn as u32).get(),
                    attempts: self.rnr_retries + 1,
                };
                self.fail(self.sq.head, WcStatus::RnrRetryExcErr, cause);
                return Ok(());
            }
            self.rnr_retries += 1;
        }
        self.go_back(psn);
        self.recovering = None;
        self.rnr_until =
            Some(env.clock.exact() + Duration::from_micros(u64::from(rnr_timer_us(timer))));
        self.ack_deadline = None;
        self.probe.disarm();
        Ok(())
    }

    /// A READ response or the answer of an atomic.
    fn answer<M: Memory + ?Sized>(
        &mut self,
        env: &mut AnswerEnv<'_, '_, M>,
        psn: u64,
        answer: &Answer<'_>,
    ) -> Taken {
        let Some(read) = self.reads.front().copied().filter(|r| r.next <= psn) else {
            return Err(GHOST);
        };
        // A response acknowledges all packets before its request.
        let told = if self.progress(env, read.next) { Ok(()) } else { Err(STALE) };
        if read.next < psn {
            return Err(Untaken::Early(read.next));
        }
        if self.fails_at(read.idx) {
            return told;
        }
        let wqe = self.sq.wqe(read.idx);
        let at = (psn - wqe.first) * self.mtu;
        let bad = |what| {
            let psn = Psn::new(psn as u32).get();
            Err((WcStatus::BadRespErr, Cause::ProtocolViolation { what, psn }))
        };
        let placed = match (wqe.op, answer) {
            (_, Answer::Data(opcode, _)) if !self.is_in_sequence(&read, *opcode) => {
                bad("response opcode (First, Middle, Last, Only) out of sequence")
            }
            (SendOp::Read(_), Answer::Data(_, data))
                if data.len() as u64 == (wqe.len - at).min(self.mtu) =>
            {
                self.place(env, read.idx, at, data)
            }
            (SendOp::AtomicWrite(_) | SendOp::Flush { .. }, Answer::Data(_, [])) => Ok(()),
            // The wire carries the number; memory holds it in host order (IBTA 9.4.5).
            (SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, Answer::Old(old)) => {
                self.place(env, read.idx, 0, &old.to_ne_bytes())
            }
            _ => bad("response does not fit the request"),
        };
        if let Err((status, cause)) = placed {
            self.fail(read.idx, status, cause);
            return Ok(());
        }
        if psn + 1 == read.end {
            self.reads.pop_front();
        } else if let Some(front) = self.reads.front_mut() {
            front.next += 1;
        }
        self.progress(env, psn + 1);
        Ok(())
    }

    /// May the response at `read.next` have this opcode? The responses to one request are First,
    /// Middle, Last, or Only (IBTA 9.7.5.1). The requester fails on any other order, as rxe does.
    ///
    /// A READ requested again in parts may be answered by a response to an earlier, longer request.
    /// So First and Only need the start of a request, and Last and Only need its end. Middle and
    /// Last may stand at the start, and First and Middle at the end, only where an earlier request
    /// went on.
    fn is_in_sequence(&self, read: &ReadReq, opcode: Opcode) -> bool {
        let wqe = self.sq.wqe(read.idx);
        let is_boundary = |psn| read.fresh || self.asked.contains(&(psn, true));
        let (starts, ends) = (read.next == read.start, read.next + 1 == read.end);
        let must_start = starts && (read.start == wqe.first || is_boundary(read.start));
        let must_end = ends && (read.end == wqe.end() || is_boundary(read.end));
        let says_start = opcode.is_first() || opcode.is_only();
        let says_end = opcode.is_last() || opcode.is_only();
        (says_start || !must_start)
            && (says_end || !must_end)
            && (starts || !says_start)
            && (ends || !says_end)
    }

    /// Writes response bytes for a request to its scatter/gather list, from byte `at` of the answer
    /// on.
    fn place<M: Memory + ?Sized>(
        &mut self,
        env: &AnswerEnv<'_, '_, M>,
        idx: u64,
        at: u64,
        mut data: &[u8],
    ) -> Result<(), (WcStatus, Cause)> {
        let SgePosition { mut sge, mut off } = if (self.sink.0, self.sink.1) == (idx, at) {
            self.sink.2
        } else {
            self.locate(idx, at)
        };
        let end = at + data.len() as u64;
        let sges = self.sq.sges(idx);
        while !data.is_empty() {
            let s = &sges[sge];
            let take = (data.len() as u32).min(s.length - off);
            let va = s.addr.wrapping_add(u64::from(off));
            let range = env
                .keys
                .check_local(env.ctx.config.pd, s.lkey, Access::LOCAL_WRITE, va, take)
                .map_err(|cause| (WcStatus::LocProtErr, cause))?;
            let (now, later) = data.split_at(take as usize);
            env.memory
                .write(range, now)
                .map_err(|fault| (WcStatus::LocProtErr, Cause::Fault { addr: fault.addr }))?;
            data = later;
            off += take;
            if off == s.length {
                sge += 1;
                off = 0;
            }
        }
        self.sink = (idx, end, SgePosition { sge, off });
        Ok(())
    }
}
