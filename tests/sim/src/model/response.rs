//! Responses: checked when they leave the responder, and for their effect at the requester.
use super::request::place_of;
use super::{Check, Op, Violation, ensure, merged, slice_sges, spread};
use crate::memory::{SHARED, Touch};
use crate::net::Meta;
use crate::world::{PD, QPN, World};
use adverb_engine::{Access, QpState, SendOp, WcStatus, wr::Remote};
use adverb_wire::{Headers, NakCode, Psn, Syndrome};

/// Status of a request that receives this NAK.
fn status_of(code: NakCode) -> WcStatus {
    match code {
        NakCode::PsnSequence | NakCode::RemoteOperational => WcStatus::RemOpErr,
        NakCode::InvalidRequest => WcStatus::RemInvReqErr,
        NakCode::RemoteAccess => WcStatus::RemAccessErr,
        NakCode::InvalidRdRequest => WcStatus::RemInvRdReqErr,
    }
}

impl World {
    /// A response leaves queue pair `q`. It may acknowledge only executed requests, and refuse only
    /// refused requests.
    pub(crate) fn check_response(&mut self, q: usize, headers: &Headers) -> Check<Meta> {
        let end = &self.ends[q];
        let peer = end.peer;
        let (next, device) = (end.rx.next, end.device);
        let flow = &self.ends[peer].flow;
        let at = place_of(flow.base, next, headers.bth.psn);
        // Responses to copies from an earlier connection lie before the start of the present one.
        let at = u64::try_from(at).ok();
        let op = at.and_then(|at| {
            flow.ops[..flow.started].iter().rposition(|o| o.first <= at && at < o.first + o.packets)
        });
        let epoch = if at.is_some() { self.epoch_of(q) } else { u32::MAX };
        let meta = Meta {
            qp: q,
            epoch,
            op: op.unwrap_or(usize::MAX),
            psn: at.unwrap_or(u64::MAX),
            response: true,
        };
        let Some(at) = at else { return Ok(meta) };
        match headers.aeth.map(|a| a.syndrome) {
            Some(Syndrome::RnrNak { .. } | Syndrome::Nak(NakCode::PsnSequence)) => {
                ensure!(at == next, "a NAK asks for PSN {at}, expected is {next}");
                self.ends[q].rx.nak_sent = true;
            }
            Some(Syndrome::Nak(code)) => {
                let Some(index) = op else {
                    return Err(Violation(format!("{code:?} for PSN {at}, which was never sent")));
                };
                // The key of a READ may be revoked while the READ is answered.
                let gone = self.read_is_gone(device, q, &self.ends[peer].flow.ops[index], at);
                let op = &mut self.ends[peer].flow.ops[index];
                if code == NakCode::RemoteAccess && gone && op.refused.is_none() {
                    op.refused = Some(WcStatus::RemAccessErr);
                    self.ends[q].doomed = true;
                }
                let op = &self.ends[peer].flow.ops[index];
                let same = op.refused == Some(status_of(code));
                ensure!(same, "request {}: {code:?} leaves, refused is {:?}", op.id, op.refused);
            }
            _ => ensure!(at < next, "PSN {at} is acknowledged, executed is all before {next}"),
        }
        if let (Some(ack), Some(index)) = (headers.atomic_ack, op) {
            let op = &self.ends[peer].flow.ops[index];
            let same = op.result == Some(ack.original);
            ensure!(
                same,
                "atomic {}: {:#x} is answered, was {:x?}",
                op.id,
                ack.original,
                op.result
            );
        }
        Ok(meta)
    }

    /// A congestion notification (CNP) leaves queue pair `q`. This is right only after a marked
    /// packet, and the CNP carries nothing else.
    pub(crate) fn check_notification(
        &mut self,
        q: usize,
        headers: &Headers,
        payload: &[u8],
    ) -> Check<Meta> {
        let end = &mut self.ends[q];
        let marked = std::mem::replace(&mut end.marked, false);
        ensure!(
            marked && end.is_reliable(),
            "queue pair {q} tells of congestion that there is not"
        );
        let bth = &headers.bth;
        let plain = bth.becn && !bth.ack_req && bth.psn == Psn::ZERO && payload == [0; 16];
        ensure!(plain, "a notification says {headers:?}, {payload:?}");
        Ok(Meta { qp: q, epoch: u32::MAX, op: usize::MAX, psn: u64::MAX, response: true })
    }

    /// Queue pair `q` could not read the payload of its answer, and the engine was told.
    pub(crate) fn check_fault(&mut self, q: usize, headers: &Headers) -> Check {
        let peer = self.ends[q].peer;
        let base = self.ends[peer].flow.base;
        let at = u64::try_from(place_of(base, self.ends[q].rx.next, headers.bth.psn));
        let broken = self.ends[q].engine.state() == QpState::Err;
        let flow = &mut self.ends[peer].flow;
        let of = |o: &Op| at.is_ok_and(|at| o.first <= at && at < o.first + o.packets);
        let op = flow.ops[..flow.started].iter_mut().rfind(|o| of(o));
        if let Some(op) = op
            && op.executed_at > 0
        {
            // A repeated READ is refused, but the connection goes on. The READ may have had no
            // answer before. An early READ that waited may be executed just before its repetition
            // arrives. The repetition asks for less and replaces it. A later request for the rest
            // is a repetition, too, and may be the first to meet the hole.
            let repeated = at.is_ok_and(|at| op.again.iter().any(|psns| psns.contains(&at)));
            ensure!(
                broken || repeated,
                "request {}: a READ fails, but the connection goes on",
                op.id
            );
            op.refused = op.refused.or(Some(WcStatus::RemOpErr));
            self.ends[q].doomed |= broken;
        }
        Ok(())
    }

    /// Is some of the memory of a READ out of reach by now?
    pub(crate) fn is_gone(&self, q: usize, op: &Op) -> bool {
        let SendOp::Read(Remote { va, rkey }) = op.op else { return false };
        let device = &self.devices[self.ends[q].device];
        let who = (PD, QPN + q as u32);
        let pieces = device.naive.remote(who, rkey, Access::REMOTE_READ, va, op.len as u32);
        op.executed_at > 0 && pieces.is_none_or(|p| device.faults(rkey, &p))
    }

    fn read_is_gone(&self, device: usize, q: usize, op: &Op, at: u64) -> bool {
        let SendOp::Read(Remote { va, rkey }) = op.op else { return false };
        let skip = (at - op.first) * self.ends[q].mtu;
        let n = (op.len - skip).min(self.ends[q].mtu);
        let who = (PD, QPN + q as u32);
        let keys = &self.devices[device].naive;
        keys.remote(who, rkey, Access::REMOTE_READ, va.wrapping_add(skip), n as u32).is_none()
    }

    /// Requester `q` handled a response. The response may have placed the next bytes of the answer,
    /// and nothing else.
    pub(crate) fn check_placed(
        &mut self,
        q: usize,
        meta: &Meta,
        payload: &[u8],
        stale: bool,
    ) -> Check {
        let device = self.ends[q].device;
        let mut wrote = Vec::new();
        for touch in self.take_touches(device) {
            match touch {
                Touch::Write { addr, data, .. } => wrote.push((addr, data)),
                Touch::Atomic { .. } => {
                    return Err(Violation("a response performs an atomic".into()));
                }
            }
        }
        let answered = if stale { None } else { self.ends[q].flow.ops.get(meta.op) };
        let Some(op) = answered else {
            ensure!(wrote.is_empty(), "a stray response writes memory");
            return Ok(());
        };
        if wrote.is_empty() {
            return Ok(());
        }
        let mtu = self.ends[q].mtu;
        let at = (meta.psn - op.first) * mtu;
        ensure!(at == op.placed, "request {}: byte {at} placed, next is {}", op.id, op.placed);
        let bytes = match (op.op, op.result) {
            (SendOp::Read(_), _) => payload.to_vec(),
            (SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, Some(old)) => {
                old.to_ne_bytes().to_vec()
            }
            _ => return Err(Violation(format!("request {} places an answer", op.id))),
        };
        let keys = &self.devices[device].naive;
        let (mut due, mut rest, mut whole) = (Vec::new(), &bytes[..], true);
        for s in slice_sges(&op.sges, at, bytes.len() as u64) {
            let Some(pieces) = keys.local(PD, s.lkey, Access::LOCAL_WRITE, s.addr, s.length) else {
                whole = false;
                break;
            };
            if self.devices[device].faults(s.lkey, &pieces) {
                whole = false;
                break;
            }
            let (now, later) = rest.split_at(s.length as usize);
            due.extend(spread(&pieces, now));
            rest = later;
        }
        ensure!(merged(wrote) == merged(due), "request {}: the answer went elsewhere", op.id);
        if matches!(op.op, SendOp::Read(_)) {
            self.check_read(q, op, at, &bytes)?;
        }
        if whole {
            self.ends[q].flow.ops[meta.op].placed += bytes.len() as u64;
        }
        Ok(())
    }

    /// Each byte of an answer must have been in memory at some time between the execution of the
    /// READ and now.
    fn check_read(&self, q: usize, op: &Op, at: u64, bytes: &[u8]) -> Check {
        ensure!(op.executed_at > 0, "READ {} is answered, but was never executed", op.id);
        let device = &self.devices[self.ends[self.ends[q].peer].device];
        let (mut skip, mut done) = (at, 0);
        for (addr, len) in &op.sources {
            if skip >= u64::from(*len) {
                skip -= u64::from(*len);
                continue;
            }
            let n = ((u64::from(*len) - skip) as usize).min(bytes.len() - done);
            let (from, got) = (addr + skip, &bytes[done..done + n]);
            if let Some(bad) = unexplained(device, from, got, op.executed_at) {
                return Err(Violation(format!(
                    "READ {}: byte {} ({:#04x}) was never at {:#x} since it was executed",
                    op.id,
                    at as usize + done + bad,
                    got[bad],
                    from + bad as u64
                )));
            }
            skip = 0;
            done += n;
            if done == bytes.len() {
                return Ok(());
            }
        }
        Err(Violation(format!("READ {}: an answer beyond what was executed", op.id)))
    }
}

/// Index of the first byte that memory never held since step `since`.
fn unexplained(device: &crate::world::Device, addr: u64, got: &[u8], since: u64) -> Option<usize> {
    debug_assert!(addr + got.len() as u64 <= device.arena.base + SHARED);
    let now = device.arena.get(addr, got.len());
    let mut open: Vec<usize> = (0..got.len()).filter(|i| now[*i] != got[*i]).collect();
    for (step, at, old) in device.history.iter().rev() {
        if open.is_empty() || *step < since {
            break;
        }
        open.retain(|i| {
            let a = addr + *i as u64;
            a < *at || a >= at + old.len() as u64 || old[(a - at) as usize] != got[*i]
        });
    }
    open.first().copied()
}
