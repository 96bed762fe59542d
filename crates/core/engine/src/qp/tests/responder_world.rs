//! A queue pair, an arena and a peer made of packet values.
use crate::attr::QpAttr;
use crate::effects::Effects;
use crate::keys::{KeyTable, Region, RegionKind};
use crate::memory::{AtomicOp, Memory, MemoryFault, Range, RangeKind};
use crate::packet::{Data, Output, Packet};
use crate::qp::{Env, NoRecv, Qp, QpConfig, RecvSource};
use crate::types::*;
use crate::wr::{RecvWqe, RecvWr, Sge, SgeList};
use crate::{Completion, CqRef, QpCap, QpEvent};
use adverb_wire::Time;
use adverb_wire::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

pub(super) const QPN: Qpn = 0x11;
pub(super) const PEER: Qpn = 0x22;
pub(super) const PD: PdId = PdId(1);
pub(super) const SRQ_PD: PdId = PdId(2);
pub(super) const PSN: u32 = 0xff_fffe;
pub(super) const MTU: usize = 256;
pub(super) const QKEY: u32 = 0x1234;
pub(super) const SRQN: u32 = 0x77;
/// Memory that the peer may reach.
pub(super) const TARGET: u64 = 0x1000;
pub(super) const TARGET_LEN: u64 = 0x1000;
/// Memory for receives.
pub(super) const BUFFERS: u64 = 0x3000;
pub(super) const BUFFERS_LEN: u64 = 0x1000;
/// The content of memory that must stay unchanged.
const FILLER: u8 = 0xee;
const ARENA: usize = 0x5000;

pub(super) const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::FLUSH_PERSISTENT);

/// Memory that panics on an access outside the registered ranges.
pub(super) struct Arena {
    pub(super) bytes: RefCell<Vec<u8>>,
    /// A page that is missing although registered.
    pub(super) hole: core::cell::Cell<Option<u64>>,
    pub(super) writes: core::cell::Cell<usize>,
}

impl Arena {
    fn at(&self, r: Range) -> Result<core::ops::Range<usize>, MemoryFault> {
        let (start, end) = (r.addr, r.addr + u64::from(r.len));
        let inside = |base: u64, len: u64| start >= base && end <= base + len;
        assert!(
            inside(TARGET, TARGET_LEN) || inside(BUFFERS, BUFFERS_LEN),
            "outside every region: {r:?}"
        );
        match self.hole.get() {
            Some(h) if start <= h && h < end => Err(MemoryFault { addr: h }),
            _ => Ok(start as usize..end as usize),
        }
    }
    pub(super) fn slice(&self, at: u64, len: usize) -> Vec<u8> {
        self.bytes.borrow()[at as usize..][..len].to_vec()
    }
    pub(super) fn u64(&self, at: u64) -> u64 {
        u64::from_ne_bytes(self.slice(at, 8).try_into().unwrap())
    }
    pub(super) fn set(&self, at: u64, data: &[u8]) {
        self.bytes.borrow_mut()[at as usize..][..data.len()].copy_from_slice(data);
    }
    /// Is every byte outside the registered ranges unchanged?
    pub(super) fn is_untouched_outside(&self) -> bool {
        self.bytes.borrow().iter().enumerate().all(|(i, b)| {
            let i = i as u64;
            (TARGET..TARGET + TARGET_LEN).contains(&i)
                || (BUFFERS..BUFFERS + BUFFERS_LEN).contains(&i)
                || *b == FILLER
        })
    }
}

impl Memory for Arena {
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        if from.kind != RangeKind::Null {
            assert_eq!(from.len as usize, to.len());
            to.copy_from_slice(&self.bytes.borrow()[self.at(from)?]);
        }
        Ok(())
    }
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        if to.kind != RangeKind::Null {
            assert_eq!(to.len as usize, from.len());
            let at = self.at(to)?;
            self.bytes.borrow_mut()[at].copy_from_slice(from);
            self.writes.set(self.writes.get() + 1);
        }
        Ok(())
    }
    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        assert_eq!((at.addr % 8, at.len), (0, 8));
        let range = self.at(at)?;
        let old = u64::from_ne_bytes(self.bytes.borrow()[range.clone()].try_into().unwrap());
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if compare == old => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd { add } => old.wrapping_add(add),
            AtomicOp::Write { value } => value,
        };
        self.bytes.borrow_mut()[range].copy_from_slice(&new.to_ne_bytes());
        Ok(old)
    }
}

/// An SRQ, also the only XRC SRQ.
#[derive(Default)]
pub(super) struct TestSrq(pub(super) VecDeque<RecvWqe>);

impl RecvSource for TestSrq {
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        match xrc_srqn {
            None | Some(SRQN) => self.0.pop_front().ok_or(NoRecv::Empty),
            Some(_) => Err(NoRecv::NoSuchSrq),
        }
    }
}

/// A packet of the queue pair.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sent {
    pub(super) headers: Headers,
    pub(super) payload: Vec<u8>,
}

impl Sent {
    pub(super) fn op(&self) -> Operation {
        self.headers.bth.opcode.operation()
    }
    pub(super) fn psn(&self) -> u32 {
        self.headers.bth.psn.since(Psn::new(PSN)) as u32
    }
    pub(super) fn syndrome(&self) -> Syndrome {
        self.headers.aeth.unwrap().syndrome
    }
    pub(super) fn msn(&self) -> u32 {
        self.headers.aeth.unwrap().msn
    }
    /// The packet's PSN relative to the first PSN, and its operation.
    pub(super) fn brief(&self) -> (u32, Operation) {
        (self.psn(), self.op())
    }
}

pub(super) struct World {
    pub(super) qp: Qp,
    pub(super) keys: KeyTable,
    pub(super) memory: Arena,
    pub(super) srq: TestSrq,
    pub(super) effects: Effects,
    pub(super) rkey: Key,
    pub(super) lkey: Key,
    pub(super) now: Time,
    next_wr: u64,
}

/// A request packet under construction.
#[derive(Clone)]
pub(super) struct Request {
    pub(super) headers: Headers,
    pub(super) payload: Vec<u8>,
}

impl Request {
    pub(super) fn data(mut self, data: &[u8]) -> Self {
        self.headers.bth.pad = pad_for(data.len());
        self.payload = data.to_vec();
        self
    }
    pub(super) fn ask_ack(mut self) -> Self {
        self.headers.bth.ack_req = true;
        self
    }
    pub(super) fn solicited(mut self) -> Self {
        self.headers.bth.solicited = true;
        self
    }
    pub(super) fn reth(mut self, rkey: Key, va: u64, len: usize) -> Self {
        self.headers.reth = Some(Reth { va, rkey, len: len as u32 });
        self
    }
    pub(super) fn imm(mut self, imm: u32) -> Self {
        self.headers.imm = Some(ImmDt(imm));
        self
    }
    pub(super) fn invalidate(mut self, rkey: Key) -> Self {
        self.headers.ieth = Some(Ieth { rkey });
        self
    }
    pub(super) fn atomic(mut self, rkey: Key, va: u64, swap_add: u64, compare: u64) -> Self {
        self.headers.atomic = Some(AtomicEth { va, rkey, swap_add, compare });
        self
    }
}

/// Bytes that differ from packet to packet.
pub(super) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256 + 1) as u8).collect()
}

pub(super) fn peer_gid() -> Gid {
    Gid::from_ipv4([10, 0, 0, 2])
}

impl World {
    pub(super) fn rc() -> World {
        World::new(QpType::Rc, false)
    }

    /// A queue pair in RTS with all rights and the peer at `PSN`.
    pub(super) fn new(qp_type: QpType, uses_srq: bool) -> World {
        let cap = QpCap {
            max_send_wr: 4,
            max_recv_wr: 8,
            max_send_sge: 4,
            max_recv_sge: 6,
            max_inline_data: 64,
        };
        let config = QpConfig {
            qpn: QPN,
            qp_type,
            pd: PD,
            cap,
            signal_all: false,
            uses_srq,
            port_mtu: PathMtu::Mtu1024,
            max_inflight: QpConfig::MAX_INFLIGHT,
            counted: false,
        };
        let mut keys = KeyTable::new();
        let region = |pd, access, addr, len| Region {
            pd,
            access,
            iova: addr,
            len,
            addr,
            kind: RegionKind::Mapped,
        };
        let rkey = keys.register(region(PD, ALL, TARGET, TARGET_LEN), 0x1000).unwrap();
        let recv_pd = if uses_srq { SRQ_PD } else { PD };
        let lkey = keys
            .register(region(recv_pd, Access::LOCAL_WRITE, BUFFERS, BUFFERS_LEN), 0x2000)
            .unwrap();
        let mut qp = Qp::new(config).unwrap();
        qp.attr = QpAttr {
            state: QpState::Rtr,
            path_mtu: PathMtu::Mtu256,
            qkey: QKEY,
            rq_psn: PSN,
            dest_qpn: PEER,
            access: ALL,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 14,
            ..qp.attr
        };
        qp.attr.av.dgid = peer_gid();
        qp.responder.start(&qp.attr);
        qp.attr.state = QpState::Rts;
        World {
            qp,
            keys,
            memory: Arena {
                bytes: RefCell::new(vec![FILLER; ARENA]),
                hole: None.into(),
                writes: 0.into(),
            },
            srq: TestSrq::default(),
            effects: Effects::default(),
            rkey,
            lkey,
            now: Time::ZERO,
            next_wr: 1,
        }
    }

    /// A packet with the PSN `n` after the first.
    pub(super) fn packet(&self, op: Operation, n: u32) -> Request {
        let transport = match self.qp.config.qp_type {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            QpType::Ud => Transport::Ud,
            _ => Transport::Xrc,
        };
        let opcode = Opcode::new(transport, op).unwrap();
        let mut headers = Headers::new(Bth::new(opcode, QPN, Psn::new(PSN) + n));
        headers.xrceth = opcode.has_xrceth().then_some(XrcEth { srqn: SRQN });
        headers.deth = opcode.has_deth().then_some(Deth { qkey: QKEY, src_qpn: PEER });
        Request { headers, payload: Vec::new() }
    }

    /// Posts a receive with buffers of these lengths, one after the other. Answers its id and the
    /// first address.
    pub(super) fn recv(&mut self, at: u64, lens: &[u32]) -> u64 {
        let mut addr = BUFFERS + at;
        let sges: Vec<Sge> = lens
            .iter()
            .map(|&length| {
                let sge = Sge { addr, length, lkey: self.lkey };
                addr += u64::from(length);
                sge
            })
            .collect();
        self.recv_sges(&sges)
    }

    pub(super) fn recv_sges(&mut self, sges: &[Sge]) -> u64 {
        let wr_id = self.next_wr;
        self.next_wr += 1;
        if self.qp.config.uses_srq {
            self.srq.0.push_back(RecvWqe {
                wr_id,
                pd: SRQ_PD,
                sges: SgeList::new(sges),
                tagged: None,
            });
        } else {
            self.qp.post_recv(&RecvWr { wr_id, sges }, &mut self.effects).unwrap();
        }
        wr_id
    }

    pub(super) fn give(&mut self, r: &Request) {
        self.give_from(r, peer_gid());
    }

    pub(super) fn give_from(&mut self, r: &Request, src: Gid) {
        let dst = if src.ipv4().is_some() { Gid::from_ipv4([10, 0, 0, 1]) } else { Gid([9; 16]) };
        let packet = Packet {
            src,
            dst,
            traffic_class: 2,
            hop_limit: 63,
            mtu: None,
            headers: r.headers,
            payload: &r.payload,
        };
        let mut env = Env {
            clock: &self.now,
            keys: &self.keys,
            memory: &self.memory,
            srq: &mut self.srq,
            effects: &mut self.effects,
        };
        let before = self.qp.counters().handled();
        self.qp.handle_packet(&mut env, &packet);
        while let Some(kept) = self.qp.take_turn(self.now) {
            self.qp.handle_packet(&mut env, &kept.packet());
        }
        assert_eq!(self.qp.counters().handled(), before + 1, "not counted once: {packet:?}");
    }

    /// Polls one packet.
    pub(super) fn poll(&mut self) -> Option<Sent> {
        let out = self.qp.poll_output(&Time::ZERO, &self.keys, &mut self.effects);
        let Output::Packet(t) = out else { return None };
        let mut payload = Vec::new();
        let mut fault = None;
        match t.payload {
            Data::Bytes(b) => payload.extend_from_slice(b),
            Data::Gather(ranges) => {
                for r in ranges {
                    assert!(r.len > 0);
                    let mut part = vec![0; r.len as usize];
                    fault = self.memory.read(*r, &mut part).err().or(fault);
                    payload.extend(part);
                }
            }
        }
        let sent = Sent { headers: *t.headers, payload };
        if let Some(fault) = fault {
            self.qp.transmit_failed(fault, &mut self.effects);
            return self.poll();
        }
        assert!(sent.headers.is_consistent(), "{sent:?}");
        assert_eq!(sent.headers.bth.pad, pad_for(sent.payload.len()));
        assert_eq!(sent.headers.bth.dest_qpn, PEER);
        Some(sent)
    }

    /// All packets to send.
    pub(super) fn out(&mut self) -> Vec<Sent> {
        core::iter::from_fn(|| self.poll()).collect()
    }

    /// The only packet to send.
    pub(super) fn one(&mut self) -> Sent {
        let mut out = self.out();
        assert_eq!(out.len(), 1, "{out:?}");
        out.remove(0)
    }

    pub(super) fn silent(&mut self) {
        assert_eq!(self.out(), []);
    }

    pub(super) fn completions(&mut self) -> Vec<Completion> {
        let to = if self.qp.config.qp_type == QpType::XrcRecv {
            CqRef::XrcSrq(SRQN)
        } else {
            CqRef::Recv
        };
        let taken = core::mem::take(&mut self.effects.completions);
        taken
            .into_iter()
            .map(|(cq, c)| {
                assert_eq!((cq, c.qpn), (to, QPN));
                c
            })
            .collect()
    }

    /// The only completion.
    pub(super) fn completion(&mut self) -> Completion {
        let mut all = self.completions();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }

    pub(super) fn events(&mut self) -> Vec<QpEvent> {
        core::mem::take(&mut self.effects.events)
    }

    /// Asserts that the packet at `psn` was refused for good: a single NAK with this code, and the
    /// queue pair in ERR.
    pub(super) fn assert_refused(&mut self, psn: u32, code: NakCode) {
        let nak = self.one();
        assert_eq!((nak.psn(), nak.syndrome()), (psn, Syndrome::Nak(code)));
        assert_eq!(self.qp.state(), QpState::Err);
        assert_eq!(self.qp.counters().naks_sent, 1);
        self.silent();
    }
}
