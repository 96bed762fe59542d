//! Makes work requests from a program's posts.
use super::{Device, PD, QKEY, QPN, World, XRC_SRQN, setup::ALL};
use crate::memory::SHARED;
use crate::model::{Check, Op, Violation, ensure, is_supported};
use crate::program::{KeyChoice, Post, Verb};
use crate::rng::{Rng, pattern};
use adverb_engine::keys::{FastReg, PAGE};
use adverb_engine::wr::{MwBind, Remote, UdDest};
use adverb_engine::{
    Access, Key, Payload, PostError, QpState, QpType, RecvWr, SendFlags, SendOp, SendWr, Sge,
};

const BOGUS: Key = 0xdead_be00;
/// First address of fast-registered regions, in their own address space.
const FAST: u64 = 0x5000_0000_0000;

impl Device {
    fn key(&self, choice: KeyChoice) -> Key {
        match choice {
            KeyChoice::Good => self.good,
            KeyChoice::ReadOnly => self.read_only,
            KeyChoice::Window(i) => self.naive.current(self.windows[usize::from(i % 2)]),
            KeyChoice::Fast(i) => self.naive.current(self.fast[usize::from(i % 2)]),
            KeyChoice::Volatile => self.volatile.unwrap_or(BOGUS),
            KeyChoice::OnDemand => self.on_demand[1],
            KeyChoice::OtherPd => self.other_pd,
            KeyChoice::Bogus => BOGUS,
        }
    }

    /// A range of `len` bytes at offset `at` of the key's memory.
    fn remote(&self, p: &Post, len: u64) -> Remote {
        let rkey = self.key(p.key);
        let (start, size) = self.naive.span(rkey).unwrap_or((0x1000, SHARED));
        let room = size.saturating_sub(len);
        let mut skip = u64::from(p.at).min(room);
        if p.beyond {
            skip = room + 1;
        }
        Remote { va: start + skip, rkey }
    }
}

/// A request, complete except for its number.
struct Made {
    op: SendOp,
    /// Bytes to send, or room for the answer.
    data: Vec<u8>,
    len: u64,
}

fn next_tag(key: Key) -> Key {
    key & !0xff | (key + 1) & 0xff
}

/// A scatter/gather list of `count` entries over `len` bytes.
fn split(addr: u64, len: u32, count: u32, lkey: Key, rng: &mut Rng) -> Vec<Sge> {
    let (mut sges, mut at) = (Vec::new(), 0);
    for i in 0..count {
        let left = len - at;
        let length = if i + 1 == count { left } else { rng.below(u64::from(left) + 1) as u32 };
        sges.push(Sge { addr: addr + u64::from(at), length, lkey });
        at += length;
    }
    sges
}

impl World {
    /// Most requests should succeed. A request forbidden by the present state of its key becomes
    /// another request. Requests with a deliberate mistake stay. A request also fails if the key
    /// changes before the request's turn.
    fn sensible(&self, q: usize, p: &Post) -> Post {
        let mut p = p.clone();
        if p.beyond {
            return p;
        }
        let end = &self.ends[q];
        p.inline &= p.len <= self.config.links[q / 2].inline || p.astray;
        let own = &self.devices[end.device];
        let peer = &self.devices[self.ends[end.peer].device];
        let free = own.naive.span(own.key(p.key)).is_none();
        match p.verb {
            Verb::LocalInv | Verb::Bind | Verb::FastReg => {
                p.verb = match p.key {
                    _ if !free => Verb::LocalInv,
                    KeyChoice::Fast(_) => Verb::FastReg,
                    _ => Verb::Bind,
                };
            }
            Verb::SendInv
                if !peer.naive.may_invalidate(peer.key(p.key), PD, QPN + end.peer as u32) =>
            {
                p.verb = Verb::Send;
            }
            _ if peer.naive.span(peer.key(p.key)).is_none() && p.key != KeyChoice::Bogus => {
                p.key = KeyChoice::Good;
            }
            _ => {}
        }
        p
    }

    fn make(&mut self, q: usize, p: &Post, id: u64) -> Made {
        let peer = &self.devices[self.ends[self.ends[q].peer].device];
        let own = &self.devices[self.ends[q].device];
        let len = u64::from(p.len);
        let word = if p.astray && self.ends[q].kind == QpType::Rc { 4 } else { 8 };
        let imm = (id as u32).wrapping_mul(0x9e37_79b1);
        let op = match p.verb {
            Verb::Send => SendOp::Send,
            Verb::SendImm => SendOp::SendImm(imm),
            Verb::SendInv => SendOp::SendInv(peer.key(p.key)),
            Verb::Write => SendOp::Write(peer.remote(p, len)),
            Verb::WriteImm => SendOp::WriteImm(peer.remote(p, len), imm),
            Verb::Read => SendOp::Read(peer.remote(p, len)),
            Verb::CompareSwap => {
                let remote = peer.remote(p, 8);
                // Half of them compare with the right value.
                let at = peer.arena.base + u64::from(p.at) % 64 / 8 * 8;
                let mut there = [0; 8];
                there.copy_from_slice(&peer.arena.get(at, 8));
                let compare = u64::from_ne_bytes(there) ^ u64::from(p.fence);
                SendOp::CompareSwap { remote, compare, swap: Rng::new(id).next() }
            }
            Verb::FetchAdd => {
                SendOp::FetchAdd { remote: peer.remote(p, 8), add: Rng::new(id).next() }
            }
            Verb::AtomicWrite => SendOp::AtomicWrite(peer.remote(p, 8)),
            Verb::Flush => {
                let remote = peer.remote(p, len);
                SendOp::Flush { remote, len: p.len, placement: 1, selectivity: 0 }
            }
            Verb::LocalInv => SendOp::LocalInv(own.key(p.key)),
            Verb::Bind => SendOp::BindMw(bind(own, p)),
            Verb::FastReg => return self.make_fast(q, p),
        };
        let (data, len) = match p.verb {
            Verb::Send | Verb::SendImm | Verb::SendInv | Verb::Write | Verb::WriteImm => {
                (pattern(id, p.len as usize), len)
            }
            Verb::AtomicWrite => (pattern(id, word as usize), word),
            Verb::Read => (vec![0xee; p.len as usize], len),
            Verb::CompareSwap | Verb::FetchAdd => (vec![0xee; word as usize], word),
            Verb::Flush | Verb::LocalInv | Verb::Bind | Verb::FastReg => (Vec::new(), 0),
        };
        Made { op, data, len }
    }

    /// Stages the pages of a fast registration.
    fn make_fast(&mut self, q: usize, p: &Post) -> Made {
        let device = &mut self.devices[self.ends[q].device];
        let mr = match p.key {
            KeyChoice::Window(_) => device.key(KeyChoice::Fast(0)),
            choice => device.key(choice),
        };
        let count = 1 + u64::from(p.at) % 3;
        let base = device.arena.base;
        let pages: Vec<u64> =
            (0..count).map(|i| base + (u64::from(p.at) + i * 3) % 4 * PAGE).collect();
        let first = (p.at >> 3) % 64 * 8;
        let len = u64::from(p.len).max(64).min(count * PAGE - u64::from(first));
        let access = if p.beyond { Access::REMOTE_READ } else { ALL };
        let list = device.keys.stage_pages(mr, &pages);
        let Ok(list) = list else {
            // The key does not exist, so the request is replaced by an invalidation of a bogus key.
            return Made { op: SendOp::LocalInv(BOGUS), data: Vec::new(), len: 0 };
        };
        device.naive.stage(mr, list, &pages);
        let iova = FAST + u64::from(first);
        let reg = FastReg { mr, new_key: next_tag(mr), iova, len, access, first, pages: list };
        Made { op: SendOp::FastReg(reg), data: Vec::new(), len: 0 }
    }

    /// Local memory of a request, filled with its payload; `true`: its key may be revoked.
    fn local(&mut self, q: usize, p: &Post, made: &Made) -> (Vec<Sge>, bool) {
        let link = &self.config.links[q / 2];
        let own = &self.devices[self.ends[q].device];
        let (mut lkey, mut addr, mut shaky) = (own.all, own.arena.alloc(&made.data), false);
        if matches!(made.op, SendOp::Read(_)) && p.solicited {
            // The flag SOLICITED has no meaning on a READ. Here it selects the shared area for the
            // answer.
            let key = own.key(KeyChoice::Fast((p.at % 2) as u8));
            if let Some((start, size)) = own.naive.span(key).filter(|(_, size)| *size >= made.len) {
                (lkey, addr, shaky) = (key, start + (size - made.len) / 2, true);
            }
        }
        let over = u32::from(p.at.is_multiple_of(31));
        let count = u32::from(p.sges).min(link.sges) + over;
        let count = if made.len == 0 && p.at.is_multiple_of(2) { 0 } else { count };
        let mut sges = split(addr, made.len as u32, count, lkey, &mut self.rng);
        if p.bad_local && !sges.is_empty() {
            let at = self.rng.index(sges.len());
            sges[at].lkey = [BOGUS, own.other_pd, own.on_demand[0]][p.at as usize % 3];
            own.arena.punch(sges[at].addr);
        }
        (sges, shaky)
    }

    pub(crate) fn post(&mut self, p: &Post) -> Check {
        let mut q = usize::from(p.qp) % self.ends.len();
        if self.ends[q].kind == QpType::XrcRecv && !p.astray {
            q = self.ends[q].peer;
        }
        let id = self.next_id;
        self.next_id += 1;
        let p = &self.sensible(q, p);
        let made = self.make(q, p, id);
        let (mut sges, shaky) = self.local(q, p, &made);
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, p.signaled);
        flags.set(SendFlags::SOLICITED, p.solicited);
        flags.set(SendFlags::FENCE, p.fence);
        let xrc_srqn =
            XRC_SRQN + self.ends[self.ends[q].peer].device as u32 + if p.astray { 0x50 } else { 0 };
        let ud = self.destination(q, p);
        let wr = SendWr {
            wr_id: id,
            flags,
            op: made.op,
            data: if p.inline { Payload::Inline(&[&made.data]) } else { Payload::Sges(&sges) },
            ud: Some(UdDest { av: self.path(q, ud.0), qpn: QPN + ud.0 as u32, qkey: ud.1 }),
            xrc_srqn,
        };
        let result = self.ends[q].engine.stage_send(&wr);
        let refused = self.check_post(q, &wr, &result)?;
        self.note(|| {
            format!("request {id} on {q}: {:?} of {} bytes: {result:?}", made.op, made.len)
        });
        if refused {
            self.unstage(q, &made.op);
            return Ok(());
        }
        flags.set(SendFlags::SIGNALED, p.signaled || self.config.links[q / 2].signal_all);
        sges.retain(|s| s.length > 0);
        let ud = (self.ends[q].kind == QpType::Ud).then_some(ud);
        let op = Op {
            flags,
            sges,
            inline: p.inline,
            xrc_srqn,
            ud,
            shaky,
            ..Op::new(id, made.op, self.now)
        };
        self.ends[q].flow.ops.push(Op { data: made.data, len: made.len, ..op });
        if p.chain { Ok(()) } else { self.commit(q) }
    }

    /// Drops the staged pages of a registration after a refused post.
    fn unstage(&mut self, q: usize, op: &SendOp) {
        if let SendOp::FastReg(reg) = op {
            let device = &mut self.devices[self.ends[q].device];
            device.keys.unstage_pages(reg.mr, reg.pages);
            device.naive.unstage(reg.mr, reg.pages);
        }
    }

    /// Destination of a datagram and its Q_Key.
    fn destination(&mut self, q: usize, p: &Post) -> (usize, u32) {
        let peer = self.ends[q].peer;
        if self.ends[q].kind != QpType::Ud || !p.astray {
            return (peer, QKEY);
        }
        let others: Vec<usize> =
            (0..self.ends.len()).filter(|i| self.ends[*i].kind == QpType::Ud && *i != q).collect();
        (self.rng.pick(&others), if p.at.is_multiple_of(2) { QKEY } else { QKEY + 1 })
    }

    /// Checks a post: rightly accepted, or rightly refused (`true`).
    fn check_post(&self, q: usize, wr: &SendWr<'_>, result: &Result<(), PostError>) -> Check<bool> {
        let end = &self.ends[q];
        let link = &self.config.links[q / 2];
        let state = end.engine.state();
        let state_ok = matches!(state, QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err);
        let inline = u64::from(link.inline);
        let fits = match wr.data {
            Payload::Sges(sges) => sges.len() <= link.sges as usize,
            Payload::Inline(parts) => {
                let n = parts.iter().map(|p| p.len() as u64).sum::<u64>();
                let answers = matches!(
                    wr.op,
                    SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }
                );
                let room =
                    if matches!(wr.op, SendOp::AtomicWrite(_)) { inline.max(8) } else { inline };
                !answers && n <= room
            }
        };
        let valid = state_ok && is_supported(end.kind, &wr.op) && fits;
        let flow = &end.flow;
        let queued = &flow.ops[flow.head..];
        let surely = queued.iter().position(|o| !o.is_finished(end.is_reliable()));
        let surely = surely.map_or(0, |i| queued.len() - i);
        let depth = link.depth[0] as usize;
        let right = match result {
            Ok(()) => valid && surely < depth,
            Err(PostError::Invalid(_)) => !valid,
            Err(PostError::QueueFull(_)) => valid && queued.len() >= depth,
        };
        ensure!(
            right,
            "post of {:?} in {state:?}: {result:?}; valid: {valid}, {surely} to {} of {depth} queued",
            wr.op,
            queued.len()
        );
        Ok(result.is_err())
    }

    pub(crate) fn commit(&mut self, q: usize) -> Check {
        let end = &mut self.ends[q];
        let staged = end.flow.ops.len() - end.flow.committed;
        ensure!(
            end.engine.staged_sends() == staged,
            "{} staged, not {staged}",
            end.engine.staged_sends()
        );
        end.flow.committed = end.flow.ops.len();
        let handed = end.engine.commit_sends(&mut end.effects);
        ensure!(handed == staged, "{handed} requests handed over of {staged} staged (DEF-8)");
        self.settle(q)?;
        self.wake(q);
        Ok(())
    }

    /// Posts a receive on the queue that serves queue pair `q`.
    pub(crate) fn recv(&mut self, q: usize, len: u32, sges: u32, bad_local: bool) -> Check<bool> {
        let id = self.next_id;
        self.next_id += 1;
        let end = &self.ends[q];
        let device = &self.devices[end.device];
        let addr = device.arena.alloc(&vec![0; len as usize]);
        let count = sges.min(self.config.links[q / 2].sges);
        let mut sges = split(addr, len, count, device.all, &mut self.rng);
        if bad_local && let Some(last) = sges.last_mut() {
            last.lkey = if id.is_multiple_of(2) { BOGUS } else { device.on_demand[0] };
            device.arena.punch(last.addr + u64::from(last.length / 2));
        }
        let shared = if end.kind == QpType::XrcRecv { Some(end.device * 2 + 1) } else { end.srq };
        let wr = RecvWr { wr_id: id, sges: &sges };
        let (state, end) = (end.engine.state(), &mut self.ends[q]);
        let (result, valid, room) = match shared {
            Some(srq) => {
                let queue = &mut self.srqs[srq];
                let room = queue.queue.len() < self.config.srq_depth as usize;
                (queue.srq.post(&wr), true, room)
            }
            None => {
                let room = end.rx.recvs.len() < self.config.links[q / 2].depth[1] as usize;
                let valid = state != QpState::Reset && end.kind != QpType::XrcSend;
                let known = end.rx.recvs.len() as u32;
                ensure!(end.engine.receives_posted() == known, "{known} receives are posted");
                (end.engine.post_recv(&wr, &mut end.effects), valid, room)
            }
        };
        let right = match &result {
            Ok(()) => valid && room,
            Err(PostError::Invalid(_)) => !valid,
            Err(PostError::QueueFull(_)) => valid && !room,
        };
        if !right {
            return Err(Violation(format!(
                "receive in {state:?}: {result:?}; valid: {valid}, room: {room}"
            )));
        }
        self.note(|| format!("receive {id} on {q} of {len} bytes: {result:?}"));
        if result.is_ok() {
            let recv = crate::model::Recv { id, sges };
            match shared {
                Some(srq) => self.srqs[srq].queue.push_back(recv),
                None => self.ends[q].rx.recvs.push_back(recv),
            }
            self.settle(q)?;
        }
        Ok(result.is_ok())
    }
}

fn bind(own: &Device, p: &Post) -> MwBind {
    let window = match p.key {
        KeyChoice::Window(i) => KeyChoice::Window(i),
        _ => KeyChoice::Window(0),
    };
    let mw = own.key(window);
    let region = if p.sges.is_multiple_of(3) { KeyChoice::Fast(0) } else { KeyChoice::Good };
    let mr = own.key(region);
    let (start, size) = own.naive.span(mr).unwrap_or((0x1000, SHARED));
    let skip = (u64::from(p.at) & !7) % (size & !7).max(8);
    let mut len =
        if p.len == 0 { 0 } else { (size - skip.min(size)).min(u64::from(p.len).max(512)) };
    if p.beyond {
        len = size - skip + 1;
    }
    let mut access = Access::REMOTE_WRITE;
    access.set(Access::REMOTE_READ, p.at & 0x10 == 0);
    access.set(Access::REMOTE_ATOMIC, p.at & 0x60 != 0);
    access.set(Access::ZERO_BASED, p.at & 0x80 == 0);
    MwBind { mw, new_key: next_tag(mw), mr, addr: start + skip, len, access }
}
