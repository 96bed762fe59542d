//! Two queue pairs, each with an arena, a key table and an SRQ, and a network in between
//! ([`network`]).
mod network;
pub(crate) use network::{Fate, Flying};

use crate::attr::{AddressVector, AttrMask, QpAttr, QpCap};
use crate::keys::{PagedMemory, Region, RegionKind};
use crate::memory::{Range, RangeKind};
use crate::packet::Data;
use crate::qp::{NoRecv, QpConfig};
use crate::wr::{Payload, SendFlags, SendOp, SendWr, Sge, UdDest};
use crate::*;
use adverb_wire::{Headers, Operation, pad_for};
use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::boxed::Box;
use std::collections::VecDeque;
use std::vec;
use std::vec::Vec;

pub(crate) const PD: PdId = PdId(7);
pub(crate) const QPN: [Qpn; 2] = [0x11, 0x22];
pub(crate) const QKEY: u32 = 0x1234;
/// Arena addresses begin here, so that address and offset differ.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const LIMITS: Limits = Limits {
    max_qp_wr: 4096,
    max_sge: 30,
    max_inline: 1024,
    max_cqe: 65536,
    max_rd_atomic: 16,
    max_srq_wr: 4096,
    max_msg: 1 << 31,
    port_mtu: PathMtu::Mtu4096,
    ports: 1,
    pkeys: 1,
    gids: 16,
};

pub(crate) fn gid(side: usize) -> Gid {
    Gid::from_ipv4([10, 0, 0, side as u8 + 1])
}

/// Memory of one side.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) bytes: RefCell<Vec<u8>>,
    /// An access to this address faults.
    pub(crate) hole: Cell<Option<u64>>,
}

impl Arena {
    fn find(&self, r: Range) -> Result<core::ops::Range<usize>, MemoryFault> {
        if let Some(hole) = self.hole.get()
            && (r.addr..r.addr + u64::from(r.len)).contains(&hole)
        {
            return Err(MemoryFault { addr: hole });
        }
        let at = (r.addr - BASE) as usize;
        Ok(at..at + r.len as usize)
    }
}

impl Memory for Arena {
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        if from.kind == RangeKind::Null {
            to.fill(0);
            return Ok(());
        }
        to.copy_from_slice(&self.bytes.borrow()[self.find(from)?]);
        Ok(())
    }
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        if to.kind != RangeKind::Null {
            let range = self.find(to)?;
            self.bytes.borrow_mut()[range].copy_from_slice(from);
        }
        Ok(())
    }
    fn atomic(&self, at: Range, op: AtomicOp) -> Result<u64, MemoryFault> {
        let range = self.find(at)?;
        let mut bytes = self.bytes.borrow_mut();
        let old = u64::from_ne_bytes(bytes[range.clone()].try_into().unwrap());
        let new = match op {
            AtomicOp::CompareSwap { compare, swap } if old == compare => swap,
            AtomicOp::CompareSwap { .. } => old,
            AtomicOp::FetchAdd { add } => old.wrapping_add(add),
            AtomicOp::Write { value } => value,
        };
        bytes[range].copy_from_slice(&new.to_ne_bytes());
        Ok(old)
    }
}

/// A receive queue that only one queue pair uses.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) wqes: VecDeque<RecvWqe>,
    /// Number that XRC packets must name.
    pub(crate) srqn: u32,
}

impl RecvSource for Shared {
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        if xrc_srqn.is_some_and(|n| n != self.srqn) {
            return Err(NoRecv::NoSuchSrq);
        }
        self.wqes.pop_front().ok_or(NoRecv::Empty)
    }
}

/// One end.
pub(crate) struct Side {
    pub(crate) qp: Qp,
    pub(crate) keys: KeyTable,
    pub(crate) arena: Arena,
    pub(crate) srq: Shared,
    pub(crate) effects: Effects,
    /// Completions so far, in order; tests drain them.
    pub(crate) completions: Vec<(CqRef, Completion)>,
    pub(crate) events: Vec<QpEvent>,
    /// Key of the whole arena, with every right.
    pub(crate) key: Key,
    /// Key operations performed.
    pub(crate) key_ops: usize,
}

/// Parameters of a pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) types: [QpType; 2],
    pub(crate) mtu: PathMtu,
    pub(crate) psn: u32,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    pub(crate) uses_srq: bool,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) rd_atomic: u8,
    pub(crate) arena: usize,
    pub(crate) max_inflight: u32,
}

impl Setup {
    pub(crate) fn new(qp_type: QpType) -> Setup {
        let xrc = matches!(qp_type, QpType::XrcSend | QpType::XrcRecv);
        Setup {
            types: if xrc { [QpType::XrcSend, QpType::XrcRecv] } else { [qp_type; 2] },
            mtu: PathMtu::Mtu1024,
            psn: 0xff_fff0,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 256,
            },
            signal_all: false,
            uses_srq: xrc,
            timeout: 14,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 12,
            rd_atomic: 4,
            arena: 1 << 20,
            max_inflight: QpConfig::MAX_INFLIGHT,
        }
    }
}

impl Side {
    fn new(setup: &Setup, side: usize) -> Side {
        let config = QpConfig {
            qpn: QPN[side],
            qp_type: setup.types[side],
            pd: PD,
            cap: setup.cap,
            signal_all: setup.signal_all,
            uses_srq: setup.uses_srq,
            port_mtu: PathMtu::Mtu4096,
            max_inflight: setup.max_inflight,
            counted: false,
        };
        let mut keys = KeyTable::new();
        let access = Access::from_bits_truncate(0x31f) - Access::ZERO_BASED;
        let key = keys
            .register(
                Region {
                    pd: PD,
                    access,
                    iova: BASE,
                    len: setup.arena as u64,
                    addr: BASE,
                    kind: RegionKind::Mapped,
                },
                0x5a00_1000 + side as u32 * 77777,
            )
            .unwrap();
        Side {
            qp: Qp::new(config).unwrap(),
            keys,
            arena: Arena { bytes: RefCell::new(vec![0; setup.arena]), hole: Cell::new(None) },
            srq: Shared { srqn: 9, ..Shared::default() },
            effects: Effects::default(),
            completions: Vec::new(),
            events: Vec::new(),
            key,
            key_ops: 0,
        }
    }

    pub(crate) fn fill(&self, at: usize, len: usize, seed: u8) {
        for (i, b) in self.arena.bytes.borrow_mut()[at..at + len].iter_mut().enumerate() {
            *b = pattern(i, seed);
        }
    }
    pub(crate) fn holds(&self, at: usize, len: usize, seed: u8) -> bool {
        self.arena.bytes.borrow()[at..at + len]
            .iter()
            .enumerate()
            .all(|(i, b)| *b == pattern(i, seed))
    }
    pub(crate) fn sge(&self, at: usize, len: usize) -> Sge {
        Sge { addr: BASE + at as u64, length: len as u32, lkey: self.key }
    }
    pub(crate) fn remote(&self, at: usize) -> crate::wr::Remote {
        crate::wr::Remote { va: BASE + at as u64, rkey: self.key }
    }
    pub(crate) fn u64_at(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.arena.bytes.borrow()[at..at + 8].try_into().unwrap())
    }
    pub(crate) fn put_u64(&self, at: usize, v: u64) {
        self.arena.bytes.borrow_mut()[at..at + 8].copy_from_slice(&v.to_ne_bytes());
    }
    /// Completions of the send queue, taken.
    pub(crate) fn sends(&mut self) -> Vec<Completion> {
        self.take(|r| r == CqRef::Send)
    }
    /// Completions of receives, taken.
    pub(crate) fn recvs(&mut self) -> Vec<Completion> {
        self.take(|r| r != CqRef::Send)
    }
    /// Id and status of the completions of the send queue, taken.
    pub(crate) fn sent(&mut self) -> Vec<(u64, WcStatus)> {
        statuses(&self.sends())
    }
    /// The same of receives.
    pub(crate) fn received(&mut self) -> Vec<(u64, WcStatus)> {
        statuses(&self.recvs())
    }
    fn take(&mut self, which: impl Fn(CqRef) -> bool) -> Vec<Completion> {
        let (taken, kept) = self.completions.drain(..).partition(|(r, _)| which(*r));
        self.completions = kept;
        let taken: Vec<(CqRef, Completion)> = taken;
        taken.into_iter().map(|(_, c)| c).collect()
    }

    /// The host's work after each step.
    pub(crate) fn settle(&mut self) {
        if let Some(op) = self.effects.key_op.take() {
            self.keys.apply(&op).unwrap();
            self.key_ops += 1;
        }
        self.completions.append(&mut self.effects.completions);
        self.events.append(&mut self.effects.events);
    }

    pub(crate) fn modify(
        &mut self,
        attr: &QpAttr,
        mask: AttrMask,
    ) -> Result<(), crate::attr::AttrError> {
        let result = self.qp.modify(attr, mask | AttrMask::STATE, &LIMITS, &mut self.effects);
        self.settle();
        result
    }
}

pub(crate) fn statuses(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|c| (c.wr_id, c.status)).collect()
}

/// Success of each.
pub(crate) fn all_good<const N: usize>(ids: [u64; N]) -> [(u64, WcStatus); N] {
    ids.map(|id| (id, WcStatus::Success))
}

fn pattern(i: usize, seed: u8) -> u8 {
    (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)
}

/// The masks of a transition by type.
fn masks(t: QpType) -> [AttrMask; 3] {
    use AttrMask as A;
    let init = A::PKEY_INDEX | A::PORT | if t == QpType::Ud { A::QKEY } else { A::ACCESS_FLAGS };
    let connect = A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN;
    let rtr = match t {
        QpType::Rc | QpType::XrcRecv => connect | A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER,
        QpType::Uc | QpType::XrcSend => connect,
        QpType::Ud | QpType::RawPacket => A::empty(),
    };
    let rts = A::SQ_PSN
        | match t {
            QpType::Rc | QpType::XrcSend => {
                A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC
            }
            QpType::XrcRecv => A::TIMEOUT,
            QpType::Uc | QpType::Ud | QpType::RawPacket => A::empty(),
        };
    [init, rtr, rts]
}

/// Two connected queue pairs.
pub(crate) struct Pair {
    pub(crate) sides: [Side; 2],
    pub(crate) now: Time,
    pub(crate) net: VecDeque<Flying>,
    /// Delayed packets, each with the number of packets to go first.
    late: Vec<(usize, Flying)>,
    /// All packets sent, in order.
    pub(crate) log: Vec<Flying>,
    pub(crate) fate: Box<dyn FnMut(&Flying) -> Fate>,
    pub(crate) attr: [QpAttr; 2],
    /// Packet length that the link reports for a side.
    pub(crate) link_mtu: [Option<u32>; 2],
}

impl Pair {
    /// Connected, in RTS.
    pub(crate) fn new(setup: Setup) -> Pair {
        let mut pair = Pair::in_reset(setup);
        pair.connect(0);
        pair.connect(1);
        pair
    }

    /// From RESET to RTS.
    pub(crate) fn connect(&mut self, side: usize) {
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.step_to(side, state);
        }
    }

    pub(crate) fn in_reset(setup: Setup) -> Pair {
        let attr = [0, 1].map(|side| QpAttr {
            path_mtu: setup.mtu,
            qkey: QKEY,
            rq_psn: setup.psn + (1 - side as u32),
            sq_psn: setup.psn + side as u32,
            dest_qpn: QPN[1 - side],
            access: Access::from_bits_truncate(0x30f),
            av: AddressVector {
                sgid: gid(side),
                dgid: gid(1 - side),
                is_global: true,
                hop_limit: 64,
                port_num: 1,
                ..AddressVector::default()
            },
            port_num: 1,
            max_rd_atomic: setup.rd_atomic,
            max_dest_rd_atomic: setup.rd_atomic,
            min_rnr_timer: setup.min_rnr_timer,
            timeout: setup.timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            ..QpAttr::default()
        });
        Pair {
            sides: [Side::new(&setup, 0), Side::new(&setup, 1)],
            now: Time(1_000_000),
            net: VecDeque::new(),
            late: Vec::new(),
            log: Vec::new(),
            fate: Box::new(|_| Fate::Deliver),
            attr,
            link_mtu: [None; 2],
        }
    }

    /// One step of the usual way to RTS.
    pub(crate) fn step_to(&mut self, side: usize, state: QpState) {
        let [init, rtr, rts] = masks(self.sides[side].qp.config().qp_type);
        let mask = match state {
            QpState::Init => init,
            QpState::Rtr => rtr,
            QpState::Rts if self.sides[side].qp.state() == QpState::Rtr => rts,
            _ => AttrMask::empty(),
        };
        let attr = QpAttr { state, ..self.attr[side] };
        self.sides[side].modify(&attr, mask).unwrap();
        assert_eq!(self.sides[side].qp.state(), state);
    }

    /// Stages a request without committing it.
    pub(crate) fn stage(
        &mut self,
        side: usize,
        wr_id: u64,
        op: SendOp,
        flags: SendFlags,
        data: Payload<'_>,
    ) -> Result<(), PostError> {
        let av = self.attr[side].av;
        let ud = Some(UdDest { av, qpn: QPN[1 - side], qkey: QKEY });
        self.sides[side].qp.stage_send(&SendWr { wr_id, flags, op, data, ud, xrc_srqn: 9 })
    }

    /// Posts a signaled request of one entry, or none.
    pub(crate) fn post(&mut self, side: usize, wr_id: u64, op: SendOp, at: usize, len: usize) {
        self.post_flags(side, wr_id, op, at, len, SendFlags::SIGNALED);
    }

    /// Posts a signaled WRITE from side 0 to the start of the other arena.
    pub(crate) fn write(&mut self, wr_id: u64, len: usize) {
        let to = self.sides[1].remote(0);
        self.post(0, wr_id, SendOp::Write(to), 0, len);
    }

    pub(crate) fn post_flags(
        &mut self,
        side: usize,
        wr_id: u64,
        op: SendOp,
        at: usize,
        len: usize,
        flags: SendFlags,
    ) {
        let sge = [self.sides[side].sge(at, len)];
        let sges = if len == 0 { &[][..] } else { &sge };
        self.stage(side, wr_id, op, flags, Payload::Sges(sges)).unwrap();
        self.commit(side);
    }

    pub(crate) fn commit(&mut self, side: usize) {
        let s = &mut self.sides[side];
        s.qp.commit_sends(&mut s.effects);
        s.settle();
    }

    /// Posts a receive of one entry, to the SRQ if the queue pair has one.
    pub(crate) fn recv(&mut self, side: usize, wr_id: u64, at: usize, len: usize) {
        let s = &mut self.sides[side];
        let sges = [s.sge(at, len)];
        if s.qp.config().uses_srq {
            let sges = crate::wr::SgeList::new(&sges);
            s.srq.wqes.push_back(RecvWqe { wr_id, pd: PD, sges, tagged: None });
        } else {
            s.qp.post_recv(&RecvWr { wr_id, sges: &sges }, &mut s.effects).unwrap();
        }
        s.settle();
    }
}
