//! The effect of a request packet at its responder. The oracle computes the effect before the
//! engine sees the packet, and compares afterwards.
use super::keys::Pieces;
use super::{Check, Op, Recv, ensure, merged, slice_sges, spread};
use crate::memory::Touch;
use crate::net::Meta;
use crate::world::{PD, QKEY, QPN, World, WorldEnd, XRC_SRQN};
use adverb_engine::wr::Remote;
use adverb_engine::{
    Access, AtomicOp, KeyOp, QpState, QpType, SendFlags, SendOp, WcFlags, WcOpcode, WcStatus,
};
use adverb_wire::{GRH_LEN, Headers};

/// The packet ends the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fatal {
    /// Status of the current receive, if there is one.
    pub(crate) receive: Option<WcStatus>,
    /// Status of the request at the requester; `None`: the request succeeds.
    requester: Option<WcStatus>,
}

/// A completion of a receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Received {
    pub(crate) opcode: WcOpcode,
    pub(crate) byte_len: u64,
    pub(crate) imm: u32,
    pub(crate) flags: WcFlags,
    pub(crate) src_qpn: u32,
    pub(crate) solicited: bool,
}

/// The effect of a packet. The default is no effect.
#[derive(Debug, Default)]
pub(crate) struct Expect {
    writes: Vec<(u64, Vec<u8>)>,
    atomic: Option<(u64, AtomicOp)>,
    /// A receive is taken, or the current receive is filled again from the start.
    take: bool,
    filled: u64,
    pub(crate) received: Option<Received>,
    pub(crate) invalidate: Option<KeyOp>,
    pub(crate) fatal: Option<Fatal>,
    /// PSNs of the packet, and whether the packet ends its request.
    psns: u64,
    executed: bool,
    sources: Pieces,
    rnr: bool,
    under_way: Option<(usize, u64)>,
}

impl Expect {
    fn fatal(mut self, receive: Option<WcStatus>, requester: WcStatus) -> Expect {
        self.fatal = Some(Fatal { receive, requester: Some(requester) });
        self
    }
    /// The message is acknowledged, and the receive ends in error.
    fn fatal_here(mut self, receive: WcStatus) -> Expect {
        self.fatal = Some(Fatal { receive: Some(receive), requester: None });
        self
    }
    fn not_ready() -> Expect {
        Expect { rnr: true, ..Expect::default() }
    }
}

/// The source of the receive for a message.
enum Supply<'a> {
    Some(&'a Recv),
    Empty,
    NoSuchSrq,
}

impl World {
    fn supply<'a>(&'a self, end: &'a WorldEnd, headers: &Headers, held: bool) -> Supply<'a> {
        if held && let Some(recv) = &end.rx.active {
            return Supply::Some(recv);
        }
        let queue = match headers.xrceth {
            Some(xrc) if end.kind == QpType::XrcRecv => {
                if xrc.srqn != XRC_SRQN + end.device as u32 {
                    return Supply::NoSuchSrq;
                }
                &self.srqs[end.device * 2 + 1].queue
            }
            _ => match end.srq {
                Some(srq) => &self.srqs[srq].queue,
                None => &end.rx.recvs,
            },
        };
        queue.front().map_or(Supply::Empty, Supply::Some)
    }

    /// The effect that a request packet of this connection must have at queue pair `q`.
    pub(crate) fn predict(
        &self,
        q: usize,
        meta: &Meta,
        headers: &Headers,
        payload: &[u8],
    ) -> Expect {
        let end = &self.ends[q];
        let op = &self.ends[meta.qp].flow.ops[meta.op];
        if !matches!(end.engine.state(), QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
        {
            return Expect::default();
        }
        match end.kind {
            QpType::Ud => self.predict_datagram(end, op, headers, payload),
            QpType::Uc => self.predict_unreliable(end, op, meta, headers),
            // A PSN before `next` is a duplicate. A later PSN leaves a gap.
            _ if meta.psn != end.rx.next => Expect::default(),
            _ => self.predict_packet(end, op, meta.psn, headers),
        }
    }

    fn predict_unreliable(
        &self,
        end: &WorldEnd,
        op: &Op,
        meta: &Meta,
        headers: &Headers,
    ) -> Expect {
        let follows = end.rx.under_way == Some((meta.op, meta.psn));
        if meta.psn != op.first && !follows {
            return Expect::default();
        }
        let mut expect = self.predict_packet(end, op, meta.psn, headers);
        let ours = matches!(expect.fatal, Some(Fatal { requester: Some(WcStatus::RemOpErr), .. }));
        if expect.rnr || expect.fatal.is_some() && !ours {
            // The packet is dropped. A taken receive stays the current receive.
            return Expect { take: expect.take, ..Expect::default() };
        }
        if !expect.executed && expect.fatal.is_none() {
            expect.under_way = Some((meta.op, meta.psn + 1));
        }
        expect
    }

    /// The packet with the next PSN.
    fn predict_packet(&self, end: &WorldEnd, op: &Op, psn: u64, headers: &Headers) -> Expect {
        let keys = &self.devices[end.device].naive;
        let who = (PD, QPN + self.index_of(end) as u32);
        let (skip, mtu) = ((psn - op.first) * end.mtu, end.mtu);
        let n = mtu.min(op.len - skip.min(op.len));
        let last = psn + 1 == op.first + op.packets;
        let expect = Expect { psns: 1, executed: last, ..Expect::default() };
        let remote = |need, at: u64, len| {
            let r = headers.reth.map(|r| r.rkey).or(headers.atomic.map(|a| a.rkey)).unwrap_or(0);
            keys.remote(who, r, need, at, len)
        };
        match op.op {
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => {
                self.predict_send(end, op, skip, headers, expect)
            }
            SendOp::Write(r) | SendOp::WriteImm(r, _) => {
                let need = Access::REMOTE_WRITE;
                let mut expect = expect;
                let mut receive = None;
                // A request with immediate data takes its receive before the key is checked.
                if headers.imm.is_some() {
                    let unreliable = end.kind == QpType::Uc;
                    match self.supply(end, headers, unreliable) {
                        Supply::Some(_) => expect.take = true,
                        Supply::Empty => return Expect::not_ready(),
                        Supply::NoSuchSrq => return expect.fatal(None, WcStatus::RemInvReqErr),
                    }
                    receive = Some(WcStatus::LocAccessErr);
                }
                if skip == 0 && keys.remote(who, r.rkey, need, r.va, op.len as u32).is_none() {
                    return expect.fatal(receive, WcStatus::RemAccessErr);
                }
                let Some(pieces) =
                    keys.remote(who, r.rkey, need, r.va.wrapping_add(skip), n as u32)
                else {
                    return expect.fatal(receive, WcStatus::RemAccessErr);
                };
                let fault = self.devices[end.device].faults(r.rkey, &pieces);
                let data = &op.data[skip as usize..(skip + n) as usize];
                expect.writes = spread(&pieces, data);
                if headers.imm.is_some() && !fault {
                    expect.received = Some(received(op, headers, op.len));
                }
                if fault {
                    expect.writes.clear();
                    // UC may still have a receive from a message whose last packets were lost.
                    let in_hand = headers.imm.is_some() || end.rx.active.is_some();
                    let receive = in_hand.then_some(WcStatus::LocAccessErr);
                    return expect.fatal(receive, WcStatus::RemOpErr);
                }
                expect
            }
            SendOp::Read(r) => {
                let len = headers.reth.map_or(0, |r| r.len);
                match remote(Access::REMOTE_READ, r.va.wrapping_add(skip), len) {
                    Some(sources) => {
                        let psns = u64::from(len).div_ceil(mtu).max(1);
                        let executed = psn + psns == op.first + op.packets;
                        Expect { psns, executed, sources, ..expect }
                    }
                    None => expect.fatal(None, WcStatus::RemAccessErr),
                }
            }
            SendOp::CompareSwap { remote: r, compare, swap } => {
                let to = remote(Access::REMOTE_ATOMIC, r.va, 8);
                self.predict_atomic(end, expect, r, to, AtomicOp::CompareSwap { compare, swap })
            }
            SendOp::FetchAdd { remote: r, add } => {
                let to = remote(Access::REMOTE_ATOMIC, r.va, 8);
                self.predict_atomic(end, expect, r, to, AtomicOp::FetchAdd { add })
            }
            SendOp::AtomicWrite(r) => {
                let mut word = [0; 8];
                word.copy_from_slice(&op.data);
                let to = remote(Access::REMOTE_WRITE, r.va, 8);
                let value = u64::from_ne_bytes(word);
                self.predict_atomic(end, expect, r, to, AtomicOp::Write { value })
            }
            SendOp::Flush { remote: r, len, .. } => match remote(Access::FLUSH_GLOBAL, r.va, len) {
                Some(_) => expect,
                None => expect.fatal(None, WcStatus::RemAccessErr),
            },
            SendOp::LocalInv(_) | SendOp::BindMw(_) | SendOp::FastReg(_) => Expect::default(),
        }
    }

    fn predict_atomic(
        &self,
        end: &WorldEnd,
        expect: Expect,
        r: Remote,
        to: Option<Pieces>,
        op: AtomicOp,
    ) -> Expect {
        if !r.va.is_multiple_of(8) {
            return expect.fatal(None, WcStatus::RemInvReqErr);
        }
        match to.as_deref() {
            Some(to) if self.devices[end.device].faults(r.rkey, to) => {
                expect.fatal(None, WcStatus::RemOpErr)
            }
            Some(&[(addr, 8)]) if addr.is_multiple_of(8) => {
                Expect { atomic: Some((addr, op)), ..expect }
            }
            Some(_) => expect.fatal(None, WcStatus::RemInvReqErr),
            None => expect.fatal(None, WcStatus::RemAccessErr),
        }
    }

    /// Fills a receive from byte `from` on, into `expect`. `false`: the memory cannot be written.
    /// Entries before a hole are filled, but no entry if a key is wrong.
    fn fill(
        &self,
        end: &WorldEnd,
        recv: &Recv,
        from: u64,
        data: &[u8],
        expect: &mut Expect,
    ) -> bool {
        let device = &self.devices[end.device];
        let mut parts = Vec::new();
        for s in slice_sges(&recv.sges, from, data.len() as u64) {
            let pieces = device.naive.local(PD, s.lkey, Access::LOCAL_WRITE, s.addr, s.length);
            let Some(pieces) = pieces else { return false };
            parts.push((s, pieces));
        }
        let mut rest = data;
        for (s, pieces) in parts {
            if device.faults(s.lkey, &pieces) {
                return false;
            }
            let (now, later) = rest.split_at(s.length as usize);
            expect.writes.extend(spread(&pieces, now));
            rest = later;
        }
        true
    }

    fn predict_send(
        &self,
        end: &WorldEnd,
        op: &Op,
        skip: u64,
        headers: &Headers,
        expect: Expect,
    ) -> Expect {
        let keys = &self.devices[end.device].naive;
        let begins = skip == 0;
        let recv = match self.supply(end, headers, !begins || end.kind == QpType::Uc) {
            Supply::Some(recv) => recv,
            Supply::Empty => return Expect::not_ready(),
            Supply::NoSuchSrq => return expect.fatal(None, WcStatus::RemInvReqErr),
        };
        let mut expect = Expect { take: begins, ..expect };
        let n = end.mtu.min(op.len - skip);
        if skip + n > recv.capacity() {
            return expect.fatal(Some(WcStatus::LocLenErr), WcStatus::RemInvReqErr);
        }
        if !self.fill(end, recv, skip, &op.data[skip as usize..(skip + n) as usize], &mut expect) {
            return expect.fatal(Some(WcStatus::LocProtErr), WcStatus::RemOpErr);
        }
        if let (SendOp::SendInv(key), true) = (op.op, expect.executed) {
            let qpn = QPN + self.index_of(end) as u32;
            if !keys.may_invalidate(key, PD, qpn) {
                return expect.fatal_here(WcStatus::RemInvReqErr);
            }
            expect.invalidate = Some(KeyOp::Invalidate { key, pd: PD, qpn });
        }
        expect.filled = skip + n;
        if expect.executed {
            expect.received = Some(received(op, headers, op.len));
        }
        expect
    }

    fn predict_datagram(
        &self,
        end: &WorldEnd,
        op: &Op,
        headers: &Headers,
        payload: &[u8],
    ) -> Expect {
        if op.ud.is_none_or(|(_, qkey)| qkey != QKEY) {
            return Expect::default();
        }
        let Supply::Some(recv) = self.supply(end, headers, true) else { return Expect::default() };
        let len = (GRH_LEN + payload.len()) as u64;
        let mut expect = Expect { take: true, psns: 0, ..Expect::default() };
        if len > recv.capacity() {
            return expect;
        }
        let keys_fit = slice_sges(&recv.sges, 0, len).iter().all(|s| {
            let keys = &self.devices[end.device].naive;
            keys.local(PD, s.lkey, Access::LOCAL_WRITE, s.addr, s.length).is_some()
        });
        let filled = keys_fit
            && self.fill(end, recv, 0, &[0; GRH_LEN], &mut expect)
            && self.fill(end, recv, GRH_LEN as u64, &op.data, &mut expect);
        if !filled {
            return expect.fatal(Some(WcStatus::LocProtErr), WcStatus::RemOpErr);
        }
        expect.received = Some(received(op, headers, len));
        expect.executed = true;
        expect
    }

    /// The packet was handled. Checks that memory changed as expected, and records the effect.
    pub(crate) fn confirm(
        &mut self,
        q: usize,
        meta: &Meta,
        headers: &Headers,
        expect: &Expect,
    ) -> Check {
        let device = self.ends[q].device;
        let touches = self.take_touches(device);
        let mut wrote = Vec::new();
        let mut atomic = None;
        for touch in touches {
            match touch {
                Touch::Write { addr, data, .. } => wrote.push((addr, data)),
                Touch::Atomic { addr, op, old } => {
                    ensure!(atomic.replace((addr, op)).is_none(), "two atomics of one packet");
                    self.ends[meta.qp].flow.ops[meta.op].result = Some(old);
                }
            }
        }
        let op = &self.ends[meta.qp].flow.ops[meta.op];
        let what = format!("request {} ({:?}), PSN {}", op.id, op.op, meta.psn);
        ensure!(atomic == expect.atomic, "{what}: did {atomic:x?}, due was {:x?}", expect.atomic);
        let (mut wrote, mut due) = (wrote, expect.writes.clone());
        if self.ends[q].kind == QpType::Ud {
            blank(&mut wrote);
            blank(&mut due);
        }
        let (wrote, due) = (merged(wrote), merged(due));
        if wrote != due {
            return Err(super::Violation(format!(
                "{what}: wrote {}, due was {}",
                brief(&wrote),
                brief(&due)
            )));
        }
        self.take_receive(q, headers, expect)?;
        let now = self.step;
        let mut again = None;
        let end = &mut self.ends[q];
        if end.is_reliable() {
            let up = matches!(end.engine.state(), QpState::Rtr | QpState::Rts | QpState::Sqd);
            end.rx.nak_due |= up && (expect.rnr || meta.psn > end.rx.next);
            if up && meta.psn < end.rx.next {
                let len = headers.reth.map_or(0, |r| u64::from(r.len));
                let psns = len.div_ceil(end.mtu).max(1);
                again = Some(meta.psn..meta.psn + psns);
            }
            if expect.psns > 0 && expect.fatal.is_none_or(|f| f.requester.is_none()) {
                end.rx.next += expect.psns;
                (end.rx.nak_due, end.rx.nak_sent) = (false, false);
            }
        }
        end.rx.under_way = expect.under_way;
        end.doomed |= expect.fatal.is_some();
        let flow = &mut self.ends[meta.qp].flow;
        let op = &mut flow.ops[meta.op];
        if matches!(op.op, SendOp::Read(_)) {
            op.again.extend(again);
        }
        match expect.fatal.and_then(|f| f.requester) {
            Some(requester) => op.refused = op.refused.or(Some(requester)),
            None => {
                if expect.psns > 0 && op.executed_at == 0 {
                    op.executed_at = now;
                }
                op.executed |= expect.executed;
                op.sources.extend_from_slice(&expect.sources);
            }
        }
        Ok(())
    }

    /// Makes the taken receive the current one, as the engine did.
    fn take_receive(&mut self, q: usize, headers: &Headers, expect: &Expect) -> Check {
        let end = &mut self.ends[q];
        let mut from_srq = None;
        if expect.take && end.rx.active.is_none() {
            let recv = if end.kind == QpType::XrcRecv && headers.xrceth.is_some() {
                from_srq = Some(end.device * 2 + 1);
                None
            } else if end.srq.is_some() {
                from_srq = end.srq;
                None
            } else {
                end.rx.recvs.pop_front()
            };
            end.rx.active = match from_srq {
                Some(srq) => self.srqs[srq].queue.pop_front(),
                None => recv,
            };
        }
        end.rx.filled = expect.filled;
        for (i, srq) in self.srqs.iter_mut().enumerate() {
            srq.check_taken(from_srq == Some(i))?;
        }
        Ok(())
    }
}

fn received(op: &Op, headers: &Headers, byte_len: u64) -> Received {
    let (mut imm, mut flags) = (0, WcFlags::empty());
    match op.op {
        SendOp::SendImm(v) | SendOp::WriteImm(_, v) => (imm, flags) = (v, WcFlags::WITH_IMM),
        SendOp::SendInv(key) => (imm, flags) = (key, WcFlags::WITH_INV),
        _ => {}
    }
    if headers.deth.is_some() {
        flags |= WcFlags::GRH;
    }
    Received {
        opcode: if matches!(op.op, SendOp::WriteImm(..)) {
            WcOpcode::RecvRdmaWithImm
        } else {
            WcOpcode::Recv
        },
        byte_len,
        imm,
        flags,
        src_qpn: headers.deth.map_or(0, |d| d.src_qpn),
        solicited: op.flags.contains(SendFlags::SOLICITED),
    }
}

/// The first 40 bytes of a datagram are the network's.
fn blank(writes: &mut [(u64, Vec<u8>)]) {
    let mut left = GRH_LEN;
    for (_, data) in writes {
        let n = left.min(data.len());
        data[..n].fill(0);
        left -= n;
    }
}

fn brief(writes: &[(u64, Vec<u8>)]) -> String {
    let words = writes.iter().map(|(addr, data)| {
        format!("{} bytes at {addr:#x} ({:02x?}…)", data.len(), &data[..data.len().min(8)])
    });
    if writes.is_empty() { "nothing".into() } else { words.collect::<Vec<_>>().join(", ") }
}
