//! Answers that wait to be sent, in PSN order: ACKs, READ responses packet by packet, atomic
//! results.
//!
//! Every answer also acknowledges all earlier requests (IBTA 9.7.5.1.2). So an ACK stays only while
//! no answer follows, and a burst of requests draws one ACK.
use crate::cause::Cause;
use crate::keys::KeyTable;
use crate::memory::{Range, RangeKind};
use crate::packet::{Data, Transmit};
use crate::qp::context::QpCtx;
use crate::types::{Access, Key, PdId, QpType};
use adverb_wire::{
    Aeth, AtomicAckEth, Bth, Headers, NakCode, Opcode, Operation, Psn, Reth, Syndrome, Transport,
    pad_for,
};
use alloc::collections::VecDeque;

/// The content of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    Ack,
    /// The ACK of a message that ended the connection at this end alone.
    LastAck,
    Nak(Syndrome),
    /// The rest of a READ: the next packet carries the bytes at `va`.
    Read {
        /// Protection domain of the request. For an XRC target the domain depends on the SRQ of the
        /// request.
        pd: PdId,
        va: u64,
        rkey: Key,
        left: u32,
        /// Most bytes in a packet.
        mtu: u32,
        started: bool,
    },
    Atomic {
        original: u64,
    },
    /// FLUSH or ATOMIC WRITE is done: a READ response Only without payload (annex A19).
    Done,
}

impl Body {
    /// A READ, in packets of `mtu` bytes.
    pub(super) fn read(pd: PdId, reth: &Reth, mtu: usize) -> Self {
        let Reth { va, rkey, len: left } = *reth;
        Body::Read { pd, va, rkey, left, mtu: mtu as u32, started: false }
    }
}

/// An answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    /// PSN of the answer's next packet.
    pub(super) psn: Psn,
    pub(super) msn: u32,
    /// The answer belongs to a repeated request. If the answer fails, the connection goes on and
    /// the peer gets a NAK. The reason: the request was accepted before, though a READ may be
    /// unanswered, and the repetition may be an old copy from the network.
    pub(super) duplicate: bool,
    pub(super) body: Body,
}

impl Response {
    /// Takes a place of `max_dest_rd_atomic`.
    fn is_resource(&self) -> bool {
        matches!(self.body, Body::Read { .. } | Body::Atomic { .. } | Body::Done)
    }
    /// A NAK, except a NAK that only refuses a repetition.
    fn is_nak(&self) -> bool {
        !self.duplicate && matches!(self.body, Body::Nak(_))
    }
    /// The last answer of the connection.
    fn is_final(&self) -> bool {
        match self.body {
            Body::LastAck => true,
            Body::Nak(Syndrome::Nak(code)) => !self.duplicate && code != NakCode::PsnSequence,
            _ => false,
        }
    }
}

/// The packet handed out last.
#[derive(Debug)]
struct Prepared {
    headers: Headers,
    payload: [Range; 1],
    duplicate: bool,
}

/// A READ that failed because its key no longer opens the memory.
pub(super) struct ReadFailed {
    pub(super) psn: Psn,
    pub(super) cause: Cause,
}

/// The queue. At most two answers for each resource, an ACK and a NAK.
#[derive(Debug, Default)]
pub(super) struct Responses {
    queue: VecDeque<Response>,
    prepared: Option<Prepared>,
}

impl Responses {
    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.prepared = None;
    }

    /// Exactly one answer waits, a plain ACK.
    #[inline]
    pub(super) fn only_ack(&self) -> bool {
        self.queue.len() == 1 && matches!(self.queue[0].body, Body::Ack)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Forgets all answers, unless the queue ends with the last answer of the connection. Then the
    /// last answer and all answers before it still have to leave.
    pub(super) fn clear_unless_final(&mut self) {
        if !self.queue.back().is_some_and(Response::is_final) {
            self.queue.clear();
        }
    }

    /// Does a READ that is not a duplicate still have to take payload?
    pub(super) fn owes_read(&self) -> bool {
        self.queue.iter().any(|r| !r.duplicate && matches!(r.body, Body::Read { .. }))
    }

    /// READs and atomics not answered yet. Duplicates are counted separately.
    pub(super) fn resources(&self, duplicate: bool) -> usize {
        self.queue.iter().filter(|r| r.is_resource() && r.duplicate == duplicate).count()
    }

    /// Does the answer to this PSN wait?
    pub(super) fn holds(&self, psn: Psn) -> bool {
        self.queue.iter().any(|r| r.psn == psn && r.is_resource())
    }

    /// Inserts an answer in PSN order.
    pub(super) fn insert(&mut self, r: Response) {
        let mut at = self.queue.len();
        while at > 0 && r.psn.precedes(self.queue[at - 1].psn) {
            at -= 1;
        }
        if matches!(r.body, Body::Ack) && at < self.queue.len() {
            return;
        }
        match at.checked_sub(1).map(|i| &mut self.queue[i]) {
            Some(before) if matches!(before.body, Body::Ack) => *before = r,
            Some(before) if matches!(r.body, Body::Ack) && before.psn == r.psn => {}
            _ => self.queue.insert(at, r),
        }
    }

    /// Does a NAK wait that requests a packet or ends the connection?
    pub(super) fn has_nak(&self) -> bool {
        self.queue.back().is_some_and(Response::is_nak)
    }

    /// The request named by an unsent sequence or RNR NAK has come. Only the acknowledgement in the
    /// NAK remains.
    pub(super) fn revoke_nak(&mut self) {
        if let Some(r) = self.queue.back_mut()
            && r.is_nak()
            && !r.is_final()
        {
            let Response { psn, msn, .. } = *r;
            self.queue.pop_back();
            self.insert(Response { psn: psn.prev(), msn, duplicate: false, body: Body::Ack });
        }
    }

    /// Removes the READs with remaining packets among the `n` packets from `psn` on, because the
    /// peer requests them again. Answers whether one of the removed READs was not a duplicate.
    pub(super) fn restart_reads(&mut self, psn: Psn, n: u32) -> bool {
        let mut original = false;
        self.queue.retain(|r| {
            let Body::Read { left, mtu, .. } = r.body else { return true };
            let end = r.psn + packets(left, mtu as usize);
            let apart = !r.psn.precedes(psn + n) || !psn.precedes(end);
            original |= !apart && !r.duplicate;
            apart
        });
        original
    }

    /// Drops all answers and ends with a final NAK, or with an ACK if there is no code.
    pub(super) fn end_with(&mut self, psn: Psn, msn: u32, code: Option<NakCode>) {
        self.queue.clear();
        let body = code.map_or(Body::LastAck, |code| Body::Nak(Syndrome::Nak(code)));
        self.insert(Response { psn, msn, duplicate: false, body });
    }

    /// The PSN of the READ response handed out last, and whether the response answers a duplicate.
    /// `None` if the response carries no payload.
    pub(super) fn failed_read(&self) -> Option<(Psn, bool)> {
        let p = self.prepared.as_ref()?;
        (p.payload[0].len > 0).then_some((p.headers.bth.psn, p.duplicate))
    }

    /// The memory of a repeated READ is no longer registered: refuses the rest of the READ, from
    /// the response handed out last on.
    pub(super) fn refuse_repeated(&mut self, psn: Psn, msn: u32, code: NakCode) {
        if let Some(r) = self.queue.front()
            && r.psn == psn.next()
            && matches!(r.body, Body::Read { started: true, .. })
        {
            self.queue.pop_front();
        }
        let body = Body::Nak(Syndrome::Nak(code));
        self.queue.push_front(Response { psn, msn, duplicate: true, body });
    }

    /// Prepares the next packet. `Ok(false)`: there is none.
    pub(super) fn prepare(&mut self, ctx: &QpCtx<'_>, keys: &KeyTable) -> Result<bool, ReadFailed> {
        while let Some(r) = self.queue.front_mut() {
            let Response { psn, msn, duplicate, body } = *r;
            let mut payload = Range { addr: 0, len: 0, kind: RangeKind::Null };
            let mut atomic_ack = None;
            let mut syndrome = Syndrome::ACK_NO_CREDITS;
            let mut finished = true;
            let operation = match body {
                Body::Ack | Body::LastAck => Operation::Acknowledge,
                Body::Nak(s) => {
                    syndrome = s;
                    Operation::Acknowledge
                }
                Body::Atomic { original } => {
                    atomic_ack = Some(AtomicAckEth { original });
                    Operation::AtomicAcknowledge
                }
                Body::Done => Operation::ReadResponseOnly,
                Body::Read { pd, va, rkey, left, mtu, started } => {
                    let len = left.min(mtu);
                    if len > 0 {
                        let qpn = ctx.config.qpn;
                        // The key is checked for each packet, because the region may have been
                        // deregistered since the request.
                        match keys.check_remote(pd, qpn, rkey, Access::REMOTE_READ, va, len) {
                            Ok(range) => payload = range,
                            Err(_) if duplicate => {
                                r.body = Body::Nak(Syndrome::Nak(NakCode::RemoteAccess));
                                continue;
                            }
                            Err(cause) => return Err(ReadFailed { psn, cause }),
                        }
                    }
                    finished = len == left;
                    if !finished {
                        let va = va.wrapping_add(u64::from(len));
                        r.psn = psn.next();
                        r.body = Body::Read { pd, va, rkey, left: left - len, mtu, started: true };
                    }
                    match (started, finished) {
                        (false, true) => Operation::ReadResponseOnly,
                        (false, false) => Operation::ReadResponseFirst,
                        (true, false) => Operation::ReadResponseMiddle,
                        (true, true) => Operation::ReadResponseLast,
                    }
                }
            };
            if finished {
                self.queue.pop_front();
            }
            let transport =
                if ctx.config.qp_type == QpType::XrcRecv { Transport::Xrc } else { Transport::Rc };
            // Both transports have the operations above.
            let Some(opcode) = Opcode::new(transport, operation) else { continue };
            let mut bth = Bth::new(opcode, ctx.attr.dest_qpn, psn);
            bth.pad = pad_for(payload.len as usize);
            let mut headers = Headers::new(bth);
            if opcode.has_aeth() {
                headers.aeth = Some(Aeth { syndrome, msn });
            }
            headers.atomic_ack = atomic_ack;
            self.prepared = Some(Prepared { headers, payload: [payload], duplicate });
            return Ok(true);
        }
        Ok(false)
    }

    /// The packet prepared last.
    pub(super) fn transmit<'a>(&'a self, ctx: &QpCtx<'a>) -> Transmit<'a> {
        let (headers, payload) = match &self.prepared {
            Some(p) if p.payload[0].len > 0 => (&p.headers, Data::Gather(&p.payload[..])),
            Some(p) => (&p.headers, Data::Bytes(&[])),
            // The host never asks without `prepare`. A header without payload does no harm.
            None => (&Headers::EMPTY, Data::Bytes(&[])),
        };
        let path = &ctx.attr.av;
        let (traffic_class, source_port) = (ctx.traffic_class(path), ctx.source_port());
        Transmit { path, traffic_class, source_port, headers, payload }
    }
}

/// Packets of a message of `len` bytes. A message of no bytes takes one packet.
pub(super) fn packets(len: u32, mtu: usize) -> u32 {
    len.div_ceil(mtu as u32).max(1)
}
