//! Request packets when they leave: the right packets, in order, with the right headers and bytes.
use super::{Check, Op, Violation, ensure};
use crate::net::Meta;
use crate::world::{QPN, World};
use adverb_engine::{KeyOp, QpState, QpType, SendFlags, SendOp, wr::Remote};
use adverb_wire::{Headers, Operation, Psn};

/// The operation of a packet of a SEND or WRITE.
fn operation(op: &SendOp, first: bool, last: bool) -> Operation {
    use Operation as O;
    use SendOp as S;
    match (op, first, last) {
        (S::Write(_) | S::WriteImm(..), true, false) => O::WriteFirst,
        (S::Write(_) | S::WriteImm(..), false, false) => O::WriteMiddle,
        (S::Write(_), false, true) => O::WriteLast,
        (S::Write(_), true, true) => O::WriteOnly,
        (S::WriteImm(..), false, true) => O::WriteLastImm,
        (S::WriteImm(..), true, true) => O::WriteOnlyImm,
        (S::Read(_), ..) => O::ReadRequest,
        (S::CompareSwap { .. }, ..) => O::CompareSwap,
        (S::FetchAdd { .. }, ..) => O::FetchAdd,
        (S::AtomicWrite(_), ..) => O::AtomicWrite,
        (S::Flush { .. }, ..) => O::Flush,
        (_, true, false) => O::SendFirst,
        (_, false, false) => O::SendMiddle,
        (S::SendImm(_), false, true) => O::SendLastImm,
        (S::SendImm(_), true, true) => O::SendOnlyImm,
        (S::SendInv(_), false, true) => O::SendLastInv,
        (S::SendInv(_), true, true) => O::SendOnlyInv,
        (_, false, true) => O::SendLast,
        (_, true, true) => O::SendOnly,
    }
}

fn remote_of(op: &SendOp) -> Option<Remote> {
    match op {
        SendOp::Write(r) | SendOp::WriteImm(r, _) | SendOp::Read(r) | SendOp::AtomicWrite(r) => {
            Some(*r)
        }
        SendOp::CompareSwap { remote, .. }
        | SendOp::FetchAdd { remote, .. }
        | SendOp::Flush { remote, .. } => Some(*remote),
        _ => None,
    }
}

/// Place of a PSN, counted from the start of a flow that has sent `high` PSNs.
pub(crate) fn place_of(base: u32, high: u64, psn: Psn) -> i64 {
    high as i64 + i64::from(psn.since(Psn::new(base.wrapping_add(high as u32))))
}

impl World {
    /// A request packet leaves queue pair `q`. Without `payload` the engine could not read the
    /// packet's memory, and the packet does not leave.
    pub(crate) fn check_request(
        &mut self,
        q: usize,
        headers: &Headers,
        payload: Option<&[u8]>,
    ) -> Check<Meta> {
        let mtu = self.ends[q].mtu;
        let flow = &self.ends[q].flow;
        let at = place_of(flow.base, flow.high, headers.bth.psn);
        ensure!(
            at >= 0 && at as u64 <= flow.high,
            "PSN {at} leaves, the next new one is {}",
            flow.high
        );
        let at = at as u64;
        let index = if at == flow.high {
            let under_way =
                flow.ops[..flow.started].last().is_some_and(|o| at < o.first + o.packets);
            if under_way && flow.started > flow.resumed {
                flow.started - 1
            } else {
                self.begin(q, mtu)?
            }
        } else {
            ensure!(self.ends[q].is_reliable(), "PSN {at} leaves again on an unreliable transport");
            let holds = |o: &Op| o.first <= at && at < o.first + o.packets;
            let index = flow.ops[..flow.started].iter().rposition(holds);
            let Some(index) = index.filter(|i| *i >= flow.head) else {
                return Err(Violation(format!(
                    "PSN {at} leaves again after its request completed"
                )));
            };
            index
        };
        let op = &self.ends[q].flow.ops[index];
        self.check_headers(q, op, at, headers, payload)?;
        let count = match headers.reth {
            Some(reth) if matches!(op.op, SendOp::Read(_)) => {
                u64::from(reth.len).div_ceil(mtu).max(1)
            }
            _ => 1,
        };
        ensure!(
            at + count <= op.first + op.packets,
            "request {}: a READ of more than was asked for",
            op.id
        );
        let (epoch, now) = (self.epoch_of(q), self.now);
        let flow = &mut self.ends[q].flow;
        let op = &mut flow.ops[index];
        op.tries += u32::from(at == op.first);
        op.sent_at = now;
        op.fault |= payload.is_none();
        op.emitted = op.emitted.max(at + count - op.first);
        flow.high = flow.high.max(at + count);
        Ok(Meta { qp: q, epoch, op: index, psn: at, response: false })
    }

    /// The next request begins: is it due?
    fn begin(&mut self, q: usize, mtu: u64) -> Check<usize> {
        let end = &mut self.ends[q];
        let (reliable, state) = (end.is_reliable(), end.engine.state());
        let flow = &mut end.flow;
        let index = flow.started;
        ensure!(index < flow.committed, "a packet leaves, but every request has been sent");
        // In SQD one request may begin: begun earlier, but held back by the flow window or the
        // limit of READs.
        let one = state == QpState::Sqd && !std::mem::replace(&mut flow.began_in_sqd, true);
        ensure!(state == QpState::Rts || one, "request {} begins in {state:?}", flow.ops[index].id);
        ensure!(!flow.failed, "request {} begins after another failed", flow.ops[index].id);
        let op = &flow.ops[index];
        ensure!(!op.is_local(), "request {} is passed over", op.id);
        check_turn(&flow.ops, flow.head, index, reliable)?;
        let op = &mut flow.ops[index];
        op.first = flow.high;
        op.packets = op.len.div_ceil(mtu).max(1);
        flow.started = index + 1;
        Ok(index)
    }

    /// The engine asks the host for a key operation. Returns whether the operation is allowed.
    pub(crate) fn check_key_op(&mut self, q: usize, key_op: &KeyOp) -> Check<bool> {
        let end = &mut self.ends[q];
        let reliable = end.is_reliable();
        let flow = &mut end.flow;
        let index = flow.started;
        ensure!(
            index < flow.committed,
            "a key operation is asked for, but every request was begun"
        );
        check_turn(&flow.ops, flow.head, index, reliable)?;
        let op = &flow.ops[index];
        let same = match (&op.op, key_op) {
            (SendOp::BindMw(a), KeyOp::Bind { bind, .. }) => a == bind,
            (SendOp::LocalInv(a), KeyOp::Invalidate { key, .. }) => a == key,
            (SendOp::FastReg(a), KeyOp::Register { reg, .. }) => a == reg,
            _ => false,
        };
        ensure!(same, "request {} is {:?}, asked for is {key_op:?}", op.id, op.op);
        if matches!(op.op, SendOp::LocalInv(_)) {
            let open = flow.ops[flow.head..index].iter().find(|o| !o.is_finished(reliable));
            ensure!(
                open.is_none(),
                "request {} invalidates before {:?} is finished",
                op.id,
                open.map(|o| o.id)
            );
        }
        let allowed = self.devices[end.device].naive.perform(key_op);
        flow.ops[index].key_result = Some(allowed);
        flow.started = index + 1;
        Ok(allowed)
    }

    fn check_headers(
        &self,
        q: usize,
        op: &Op,
        at: u64,
        headers: &Headers,
        payload: Option<&[u8]>,
    ) -> Check {
        let end = &self.ends[q];
        let (id, mtu) = (op.id, end.mtu);
        let skip = (at - op.first) * mtu;
        let (first, last) = (at == op.first, at + 1 == op.first + op.packets);
        let bth = &headers.bth;
        let got = bth.opcode.operation();
        let want = operation(&op.op, first, last);
        ensure!(got == want, "request {id}, PSN {at}: {got:?} leaves, {want:?} is due");
        let data = if op.is_answered() && !matches!(op.op, SendOp::AtomicWrite(_)) {
            &[][..]
        } else {
            &op.data[skip as usize..(skip + mtu).min(op.len) as usize]
        };
        ensure!(
            payload.is_none_or(|p| p == data),
            "request {id}, PSN {at}: other bytes leave than it was posted with"
        );
        let receives = !matches!(op.op, SendOp::Write(_)) && !op.is_answered();
        let solicited = op.flags.contains(SendFlags::SOLICITED) && last && receives;
        ensure!(
            bth.solicited == solicited,
            "request {id}: solicited flag {} (CQN-9)",
            bth.solicited
        );
        if let (Some(reth), Some(remote)) = (headers.reth, remote_of(&op.op)) {
            let len = u64::from(reth.len);
            let is_read = matches!(op.op, SendOp::Read(_));
            let whole = match op.op {
                SendOp::Flush { len, .. } => u64::from(len),
                _ => op.len,
            };
            let fits = if is_read { skip + len <= whole } else { len == whole };
            // A part of a READ ends at the end of a packet, or with the READ.
            let even = !is_read || len % mtu == 0 || skip + len == whole;
            let same = reth.rkey == remote.rkey && reth.va == remote.va.wrapping_add(skip);
            ensure!(fits && even && same, "request {id}, PSN {at}: wrong {reth:?}");
        }
        if let (Some(eth), Some(remote)) = (headers.atomic, remote_of(&op.op)) {
            let want = match op.op {
                SendOp::CompareSwap { compare, swap, .. } => (swap, compare),
                SendOp::FetchAdd { add, .. } => (add, 0),
                _ => (0, 0),
            };
            let same = (eth.va, eth.rkey, eth.swap_add, eth.compare)
                == (remote.va, remote.rkey, want.0, want.1);
            ensure!(same, "request {id}: wrong {eth:?}");
        }
        let imm = match op.op {
            SendOp::SendImm(v) | SendOp::WriteImm(_, v) if last => Some(v),
            _ => None,
        };
        ensure!(headers.imm.map(|i| i.0) == imm, "request {id}: wrong immediate {:?}", headers.imm);
        let xrc = (end.kind == QpType::XrcSend).then_some(op.xrc_srqn);
        ensure!(headers.xrceth.map(|x| x.srqn) == xrc, "request {id}: wrong {:?}", headers.xrceth);
        let (to, qkey) = op.ud.unwrap_or((end.peer, 0));
        ensure!(bth.dest_qpn == QPN + to as u32, "request {id}: goes to {:#x}", bth.dest_qpn);
        let deth = headers.deth.map(|d| (d.qkey, d.src_qpn));
        let want = (end.kind == QpType::Ud).then_some((qkey, QPN + q as u32));
        ensure!(deth == want, "request {id}: wrong {:?}", headers.deth);
        Ok(())
    }
}

/// No request before request `index` failed on this side, and the requests that its fence waits for
/// are finished.
fn check_turn(ops: &[Op], head: usize, index: usize, reliable: bool) -> Check {
    let op = &ops[index];
    let before = &ops[head..index];
    let failed = before.iter().find(|o| o.key_result == Some(false) || o.fault);
    ensure!(
        failed.is_none(),
        "request {} begins after request {:?} failed",
        op.id,
        failed.map(|o| o.id)
    );
    if op.flags.contains(SendFlags::FENCE) {
        let open = before.iter().find(|o| o.is_answered() && !o.is_finished(reliable));
        ensure!(
            open.is_none(),
            "request {} passes its fence before {:?}",
            op.id,
            open.map(|o| o.id)
        );
    }
    Ok(())
}
