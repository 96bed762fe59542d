//! From work requests to packets: order, fences, segmentation, headers.
use super::probe::SAMPLES;
use super::state::{Cursor, Prepared, ReadReq, Requester, SgePosition, Step};
use super::window::OVERHEAD;
use crate::cause::Cause;
use crate::clock::Clock;
use crate::completion::WcStatus;
use crate::effects::Effects;
use crate::keys::{KeyOp, KeyTable};
use crate::packet::Data;
use crate::qp::context::QpCtx;
use crate::qp::{Counters, QpConfig};
use crate::types::{Access, QpState, QpType, Qpn};
use crate::wr::{Remote, SendFlags, SendOp};
use adverb_wire::{
    AtomicEth, Bth, Deth, Feth, Headers, Ieth, ImmDt, Opcode, Operation, Psn, Reth, Transport,
    XrcEth, pad_for,
};

/// Shortest frame: an Ethernet header.
const FRAME_HEADER: u64 = 14;
/// Longest message (IBTA 9.7.7.1).
pub(crate) const MAX_MSG: u64 = 1 << 31;
/// Most PSNs outstanding: half the circle. Beyond this number, old and new PSNs cannot be told
/// apart (IBTA 9.7.2).
const MAX_OUTSTANDING: u64 = 1 << (Psn::BITS - 1);

pub(crate) const fn transport_of(qp_type: QpType) -> Transport {
    match qp_type {
        QpType::Rc => Transport::Rc,
        QpType::Uc => Transport::Uc,
        // A frame leaves without RDMA headers. Counters treat a frame as a datagram.
        QpType::Ud | QpType::RawPacket => Transport::Ud,
        QpType::XrcSend | QpType::XrcRecv => Transport::Xrc,
    }
}

/// Operation of a packet of a SEND or WRITE.
fn data_operation(op: &SendOp, first: bool, last: bool) -> Operation {
    let write = matches!(op, SendOp::Write(_) | SendOp::WriteImm(..));
    match (first, last, write) {
        (true, false, false) => Operation::SendFirst,
        (true, false, true) => Operation::WriteFirst,
        (false, false, false) => Operation::SendMiddle,
        (false, false, true) => Operation::WriteMiddle,
        (false, true, _) => match op {
            SendOp::Write(_) => Operation::WriteLast,
            SendOp::WriteImm(..) => Operation::WriteLastImm,
            SendOp::SendImm(_) => Operation::SendLastImm,
            SendOp::SendInv(_) => Operation::SendLastInv,
            _ => Operation::SendLast,
        },
        (true, true, _) => match op {
            SendOp::Write(_) => Operation::WriteOnly,
            SendOp::WriteImm(..) => Operation::WriteOnlyImm,
            SendOp::SendImm(_) => Operation::SendOnlyImm,
            SendOp::SendInv(_) => Operation::SendOnlyInv,
            _ => Operation::SendOnly,
        },
    }
}

fn reth(remote: &Remote, skip: u64, len: u64) -> Reth {
    Reth { va: remote.va.wrapping_add(skip), rkey: remote.rkey, len: len as u32 }
}

impl Requester {
    /// The next action.
    pub(crate) fn poll(
        &mut self,
        ctx: &QpCtx<'_>,
        clock: &dyn Clock,
        keys: &KeyTable,
        effects: &mut Effects,
        counters: &mut Counters,
    ) -> Step {
        if !self.reliable && self.una != self.high {
            // The last packet has left, and UC and UD expect no acknowledgement (IBTA 9.8.3,
            // 9.8.2).
            self.una = self.high;
            self.pos_una = self.pos_next;
            self.retire(ctx.config, effects);
        }
        if self.peer_end.is_some() || self.rnr_until.is_some() || self.key_op.is_some() {
            return Step::Idle;
        }
        loop {
            let idx = self.cur.idx;
            // The cursor may be past a request that failed because its last packet could not be
            // read. No later request begins.
            if idx == self.sq.posted || self.failure.as_ref().is_some_and(|f| f.idx <= idx) {
                return Step::Idle;
            }
            if idx == self.next_start && !self.start_request(ctx, idx) {
                return Step::Idle;
            }
            let psn = self.cur.psn;
            let again = psn < self.high;
            let wqe = self.sq.wqe(idx);
            let made = match wqe.op {
                op if op.is_local() && wqe.done => {
                    self.cur.idx += 1;
                    continue;
                }
                op if op.is_local() => return self.key_step(ctx, idx),
                SendOp::Read(remote) => self.read_request(ctx, idx, &remote),
                SendOp::CompareSwap { .. }
                | SendOp::FetchAdd { .. }
                | SendOp::AtomicWrite(_)
                | SendOp::Flush { .. } => self.single_request(ctx, idx, keys),
                _ => self.data_packet(ctx, idx, keys),
            };
            if made.is_none() {
                return Step::Idle;
            }
            if ctx.config.qp_type == QpType::XrcSend {
                self.headers.xrceth = Some(XrcEth { srqn: self.sq.wqe(idx).xrc_srqn });
            }
            counters.sent += 1;
            counters.retransmitted += u64::from(again);
            self.prepared_idx = idx;
            if self.reliable && self.ack_deadline.is_none() {
                let now = clock.now();
                self.ack_deadline = self.timeout.map(|t| now + t);
                self.probe.arm(now, self.probe_within());
            }
            if self.headers.bth.ack_req && !again {
                let every = self.window.packets(self.mtu) / SAMPLES as u64;
                self.probe.asked(psn, clock.now(), every);
            }
            return Step::Packet;
        }
    }

    /// Makes a congestion notification the prepared packet.
    pub(crate) fn notify(&mut self, dest_qpn: Qpn) -> &Headers {
        self.headers = Headers::new(Bth::new(Opcode::CNP, dest_qpn, Psn::ZERO));
        self.headers.bth.becn = true;
        &self.headers
    }

    /// Payload of the packet just answered by [`Requester::poll`].
    pub(crate) fn payload(&self) -> Data<'_> {
        match self.prepared {
            Prepared::Inline { at, len } => Data::Bytes(self.sq.inline(self.prepared_idx, at, len)),
            Prepared::Gather if self.ranges.is_empty() => Data::Bytes(&[]),
            Prepared::Gather => Data::Gather(&self.ranges),
        }
    }

    /// UD destination of this packet.
    pub(crate) fn ud_path(&self) -> &crate::attr::AddressVector {
        &self.sq.dest(self.prepared_idx).av
    }

    /// Gives a request its PSNs, if the request may begin now. Checks all conditions known before
    /// the first packet.
    fn start_request(&mut self, ctx: &QpCtx<'_>, idx: u64) -> bool {
        if ctx.attr.state != QpState::Rts {
            return false; // SQD starts nothing new (IBTA 10.3.1.5).
        }
        let wqe = self.sq.wqe(idx);
        // A fence waits for READs and atomics (IBTA 10.8.3.3). An invalidate waits for all earlier
        // requests, because a retransmission may need the key.
        if wqe.flags.contains(SendFlags::FENCE) && !self.reads.is_empty()
            || matches!(wqe.op, SendOp::LocalInv(_)) && self.sq.head != idx
        {
            return false;
        }
        if let Err((status, cause)) =
            check_start(ctx, wqe.op, wqe.len).and(self.check_frame(ctx, wqe.len))
        {
            self.fail(idx, status, cause);
            return false;
        }
        let packets = if wqe.op.is_local() { 0 } else { wqe.len.div_ceil(self.mtu).max(1) };
        if self.high != self.una && self.high - self.una + packets > MAX_OUTSTANDING {
            return false;
        }
        let (first, pos, len) = (self.high, self.pos_next, wqe.len);
        let wqe = self.sq.wqe_mut(idx);
        wqe.started = true;
        wqe.first = first;
        wqe.packets = packets as u32;
        wqe.pos = pos;
        self.pos_next += packets * OVERHEAD + len;
        self.next_start = idx + 1;
        self.cur = Cursor { idx, psn: first, ..Cursor::default() };
        true
    }

    /// Checks that a frame has a header and fits the port.
    fn check_frame(&self, ctx: &QpCtx<'_>, len: u64) -> Result<(), (WcStatus, Cause)> {
        if ctx.config.qp_type != QpType::RawPacket {
            return Ok(());
        }
        let cause = match len {
            0..FRAME_HEADER => {
                Cause::BadArgument { what: "frame", rule: "an Ethernet header has 14 bytes" }
            }
            _ if len > self.mtu => Cause::MessageTooLong { len, max: self.mtu },
            _ => return Ok(()),
        };
        Err((WcStatus::LocLenErr, cause))
    }

    fn key_step(&mut self, ctx: &QpCtx<'_>, idx: u64) -> Step {
        let (pd, qpn) = (ctx.config.pd, ctx.config.qpn);
        self.key_op = Some(idx);
        match self.sq.wqe(idx).op {
            SendOp::BindMw(bind) => Step::Key(KeyOp::Bind { bind, pd, qpn }),
            SendOp::LocalInv(key) => Step::Key(KeyOp::Invalidate { key, pd, qpn }),
            SendOp::FastReg(reg) => Step::Key(KeyOp::Register { reg, pd }),
            _ => Step::Idle,
        }
    }

    /// Cost in flight before a packet at the cursor.
    fn in_flight(&self, pos: u64, first: u64) -> u64 {
        (pos + self.cur.at + (self.cur.psn - first) * OVERHEAD).saturating_sub(self.pos_una)
    }

    /// Cost in flight before the cursor.
    pub(super) fn flying(&self) -> u64 {
        if self.cur.idx < self.next_start {
            let wqe = self.sq.wqe(self.cur.idx);
            self.in_flight(wqe.pos, wqe.first)
        } else {
            self.pos_next.saturating_sub(self.pos_una)
        }
    }

    /// Does an unacknowledged packet before the cursor ask for an answer?
    fn answer_is_due(&self) -> bool {
        u64::from(self.since_ack_req) < self.cur.psn - self.una
    }

    /// A packet of a SEND or WRITE.
    fn data_packet(&mut self, ctx: &QpCtx<'_>, idx: u64, keys: &KeyTable) -> Option<()> {
        let wqe = self.sq.wqe(idx);
        let (at, len) = (self.cur.at, wqe.len);
        let n = (len - at).min(self.mtu);
        let (first, last) = (at == 0, at + n == len);
        let mut ack_req = false;
        if self.reliable {
            let in_flight = self.in_flight(wqe.pos, wqe.first);
            // If the window shrank after packets left, none of the packets on their way may ask for
            // an ACK. Then one more packet leaves and asks. Otherwise nothing would move until a
            // timeout.
            if !self.window.admits(in_flight, n + OVERHEAD) && self.answer_is_due() {
                return None;
            }
            // The next packet has to wait for an ACK, so this packet asks for an ACK.
            let full = !self.window.admits(in_flight + n + OVERHEAD, self.mtu + OVERHEAD);
            ack_req = last || full || self.since_ack_req + 1 >= self.window.ack_every;
        }
        let operation = data_operation(&wqe.op, first, last);
        let opcode = Opcode::new(transport_of(ctx.config.qp_type), operation)?;
        let (to, psn) = (ctx.attr.dest_qpn, Psn::new(self.cur.psn as u32));
        let headers = &mut self.headers;
        if !first && !last && (headers.bth.opcode, headers.bth.dest_qpn) == (opcode, to) {
            // The packets in the middle of a message differ in nothing else.
            headers.bth.psn = psn;
        } else {
            *headers = Headers::new(Bth::new(opcode, to, psn));
        }
        headers.bth.ack_req = ack_req;
        headers.bth.pad = pad_for(n as usize);
        if first && let SendOp::Write(remote) | SendOp::WriteImm(remote, _) = &wqe.op {
            headers.reth = Some(reth(remote, 0, len));
        }
        if last {
            match wqe.op {
                SendOp::SendImm(imm) | SendOp::WriteImm(_, imm) => headers.imm = Some(ImmDt(imm)),
                SendOp::SendInv(rkey) => headers.ieth = Some(Ieth { rkey }),
                _ => {}
            }
            // CQN-9: only packets that complete a receive carry the solicited bit.
            headers.bth.solicited =
                wqe.flags.contains(SendFlags::SOLICITED) && !matches!(wqe.op, SendOp::Write(_));
        }
        if ctx.config.qp_type == QpType::Ud {
            let dest = self.sq.dest(idx);
            headers.bth.dest_qpn = dest.qpn;
            // If the top bit of the given Q_Key is set, the queue pair's own Q_Key is sent (IBTA
            // 10.2.5).
            let qkey = if dest.qkey & 1 << 31 != 0 { ctx.attr.qkey } else { dest.qkey };
            headers.deth = Some(Deth { qkey, src_qpn: ctx.config.qpn });
        }
        if !self.gather(ctx.config, idx, n, keys) {
            return None;
        }
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + 1 };
        self.advance(n, 1, last);
        Some(())
    }

    /// Makes a READ request. A long READ is requested in parts, as a retry would request its rest.
    /// So the responses on their way fit the window.
    fn read_request(&mut self, ctx: &QpCtx<'_>, idx: u64, remote: &Remote) -> Option<()> {
        if self.reads.len() >= usize::from(ctx.attr.max_rd_atomic.max(1)) || self.waits_for_part() {
            return None;
        }
        let wqe = self.sq.wqe(idx);
        let left = wqe.end() - self.cur.psn;
        let packets = self.part().min(left);
        let last = packets == left;
        let bytes = (wqe.len - self.cur.at).min(packets * self.mtu);
        if !self.window.admits_part(self.in_flight(wqe.pos, wqe.first), bytes + packets * OVERHEAD)
        {
            return None;
        }
        let opcode = Opcode::new(transport_of(ctx.config.qp_type), Operation::ReadRequest)?;
        self.headers =
            Headers::new(Bth::new(opcode, ctx.attr.dest_qpn, Psn::new(self.cur.psn as u32)));
        self.headers.bth.ack_req = true;
        self.headers.reth = Some(reth(remote, self.cur.at, bytes));
        self.expect(idx, packets);
        self.no_payload();
        self.advance(bytes, packets, last);
        Some(())
    }

    /// Makes a request of one packet with a response of one packet.
    fn single_request(&mut self, ctx: &QpCtx<'_>, idx: u64, keys: &KeyTable) -> Option<()> {
        if self.reads.len() >= usize::from(ctx.attr.max_rd_atomic.max(1)) {
            return None;
        }
        let wqe = self.sq.wqe(idx);
        if !self.window.admits(self.in_flight(wqe.pos, wqe.first), wqe.len + OVERHEAD) {
            return None;
        }
        let op = wqe.op;
        let operation = match op {
            SendOp::CompareSwap { .. } => Operation::CompareSwap,
            SendOp::FetchAdd { .. } => Operation::FetchAdd,
            SendOp::AtomicWrite(_) => Operation::AtomicWrite,
            SendOp::Flush { .. } => Operation::Flush,
            _ => return None,
        };
        let opcode = Opcode::new(transport_of(ctx.config.qp_type), operation)?;
        self.no_payload();
        self.headers =
            Headers::new(Bth::new(opcode, ctx.attr.dest_qpn, Psn::new(self.cur.psn as u32)));
        let headers = &mut self.headers;
        headers.bth.ack_req = true;
        match op {
            SendOp::CompareSwap { remote: Remote { va, rkey }, compare, swap } => {
                headers.atomic = Some(AtomicEth { va, rkey, swap_add: swap, compare });
            }
            SendOp::FetchAdd { remote: Remote { va, rkey }, add } => {
                headers.atomic = Some(AtomicEth { va, rkey, swap_add: add, compare: 0 });
            }
            SendOp::AtomicWrite(remote) => {
                headers.reth = Some(reth(&remote, 0, 8));
                if !self.gather(ctx.config, idx, 8, keys) {
                    return None;
                }
            }
            SendOp::Flush { remote, len, placement, selectivity } => {
                headers.reth = Some(reth(&remote, 0, u64::from(len)));
                headers.feth = Some(Feth { placement, selectivity });
            }
            _ => {}
        }
        self.expect(idx, 1);
        let len = self.sq.wqe(idx).len;
        self.advance(len, 1, true);
        Some(())
    }

    fn expect(&mut self, idx: u64, packets: u64) {
        let start = self.cur.psn;
        let fresh = start >= self.high;
        self.reads.push_back(ReadReq { idx, start, next: start, end: start + packets, fresh });
        self.since_ack_req = 0;
    }

    fn no_payload(&mut self) {
        self.ranges.clear();
        self.prepared = Prepared::Gather;
    }

    /// Finds the `n` bytes at the cursor. The keys are checked now, because a key may have been
    /// taken back since the post.
    fn gather(&mut self, config: &QpConfig, idx: u64, n: u64, keys: &KeyTable) -> bool {
        if self.sq.wqe(idx).inline {
            self.prepared = Prepared::Inline { at: self.cur.at as usize, len: n as usize };
            return true;
        }
        self.no_payload();
        let SgePosition { mut sge, mut off } = self.cur.place;
        let mut left = n as u32;
        let mut refused = None;
        let sges = self.sq.sges(idx);
        while left > 0 {
            let s = &sges[sge];
            let take = left.min(s.length - off);
            let va = s.addr.wrapping_add(u64::from(off));
            match keys.check_local(config.pd, s.lkey, Access::empty(), va, take) {
                Ok(range) => self.ranges.push(range),
                Err(cause) => {
                    refused = Some(cause);
                    break;
                }
            }
            left -= take;
            off += take;
            if off == s.length {
                sge += 1;
                off = 0;
            }
        }
        if let Some(cause) = refused {
            self.fail(idx, WcStatus::LocProtErr, cause);
            return false;
        }
        self.cur.place = SgePosition { sge, off };
        true
    }

    /// The packet at the cursor is on its way.
    fn advance(&mut self, bytes: u64, packets: u64, last: bool) {
        self.cur.psn += packets;
        if last {
            self.cur = Cursor { idx: self.cur.idx + 1, psn: self.cur.psn, ..Cursor::default() };
        } else {
            self.cur.at += bytes;
        }
        self.high = self.high.max(self.cur.psn);
    }
}

/// Errors that show before the first packet.
fn check_start(ctx: &QpCtx<'_>, op: SendOp, len: u64) -> Result<(), (WcStatus, Cause)> {
    let too_long = |max| Err((WcStatus::LocLenErr, Cause::MessageTooLong { len, max }));
    let bad = |status, what, rule| Err((status, Cause::BadArgument { what, rule }));
    let port_bytes = ctx.config.port_mtu.bytes() as u64;
    if ctx.config.qp_type == QpType::Ud && len > port_bytes {
        return too_long(port_bytes);
    }
    if len > MAX_MSG {
        return too_long(MAX_MSG);
    }
    match op {
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } if len < 8 => {
            let what = "length of the buffer for the old value";
            return bad(WcStatus::LocLenErr, what, "an atomic returns 8 bytes");
        }
        SendOp::AtomicWrite(_) if len != 8 => {
            return bad(WcStatus::LocLenErr, "message length", "an atomic write has 8 bytes");
        }
        _ => {}
    }
    if op.needs_response() && ctx.attr.max_rd_atomic == 0 {
        let rule = "0 allows no READ, atomic or FLUSH";
        return bad(WcStatus::LocQpOpErr, "max_rd_atomic", rule);
    }
    Ok(())
}
