//! One end of a transfer: a queue pair with memory.
use super::path::Packet;
use super::{DEPTH, MESSAGE, Transfer, Verb};
use crate::net::gid;
use crate::rng::pattern;
use adverb_engine::keys::{PagedMemory, Region, RegionKind};
use adverb_engine::qp::Counters;
use adverb_engine::wr::{Payload, Remote, SendFlags, SendOp, SendWr, Sge};
use adverb_engine::{
    Access, AddressVector, AtomicOp, AttrMask, Completion, CqRef, Effects, Env, Key, KeyTable,
    Memory, MemoryFault, Output, PathMtu, PdId, Qp, QpAttr, QpCap, QpConfig, QpState, QpType,
    Range, RecvWr, Time,
};
use std::cell::RefCell;

const PD: PdId = PdId(1);
const QPN: [u32; 2] = [0x21, 0x42];
const BASE: u64 = 1 << 32;
/// The PSN wraps after a few MiB.
const FIRST_PSN: u32 = 0x100_0000 - 1000;

struct Bytes(RefCell<Vec<u8>>);

impl Memory for Bytes {
    fn read(&self, from: Range, to: &mut [u8]) -> Result<(), MemoryFault> {
        let at = (from.addr - BASE) as usize;
        to.copy_from_slice(&self.0.borrow()[at..at + to.len()]);
        Ok(())
    }
    fn write(&self, to: Range, from: &[u8]) -> Result<(), MemoryFault> {
        let at = (to.addr - BASE) as usize;
        self.0.borrow_mut()[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }
    fn atomic(&self, at: Range, _: AtomicOp) -> Result<u64, MemoryFault> {
        Err(MemoryFault { addr: at.addr })
    }
}

pub(super) struct GoodputEnd {
    side: usize,
    qp: Qp,
    keys: KeyTable,
    key: Key,
    memory: Bytes,
    effects: Effects,
}

impl GoodputEnd {
    pub(super) fn new(side: usize, transfer: &Transfer) -> GoodputEnd {
        let depth = DEPTH as u32;
        let cap = QpCap {
            max_send_wr: depth,
            max_recv_wr: depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp = Qp::new(QpConfig {
            qpn: QPN[side],
            qp_type: QpType::Rc,
            pd: PD,
            cap,
            signal_all: true,
            uses_srq: false,
            port_mtu: PathMtu::Mtu4096,
            max_inflight: QpConfig::MAX_INFLIGHT,
            counted: false,
        })
        .expect("memory for a queue pair");
        let mut keys = KeyTable::new();
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let len = transfer.bytes;
        let region =
            Region { pd: PD, access, iova: BASE, len, addr: BASE, kind: RegionKind::Mapped };
        let key = keys.register(region, 0x1234_5600).unwrap_or(0);
        let source = if transfer.verb == Verb::Read { 1 } else { 0 };
        let len = transfer.bytes as usize;
        let bytes = if side == source { pattern(transfer.seed, len) } else { vec![0; len] };
        GoodputEnd {
            side,
            qp,
            keys,
            key,
            memory: Bytes(RefCell::new(bytes)),
            effects: Effects::default(),
        }
    }

    pub(super) fn connect(&mut self) {
        let attr = QpAttr {
            path_mtu: PathMtu::Mtu4096,
            rq_psn: FIRST_PSN,
            sq_psn: FIRST_PSN,
            dest_qpn: QPN[1 - self.side],
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            av: AddressVector {
                sgid: gid(self.side),
                dgid: gid(1 - self.side),
                is_global: true,
                hop_limit: 64,
                port_num: 1,
                ..AddressVector::default()
            },
            port_num: 1,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            min_rnr_timer: 12,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            ..QpAttr::default()
        };
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            let mask = AttrMask::needed(QpType::Rc, self.qp.state(), state);
            let limits = &crate::world::LIMITS;
            let moved = self.qp.modify(&QpAttr { state, ..attr }, mask, limits, &mut self.effects);
            assert_eq!(moved, Ok(()), "to {state:?}");
        }
    }

    pub(super) fn counters(&self) -> &Counters {
        self.qp.counters()
    }
    pub(super) fn has_same_bytes(&self, other: &GoodputEnd) -> bool {
        self.memory.0 == other.memory.0
    }
    pub(super) fn remote(&self, at: u64) -> Remote {
        Remote { va: BASE + at, rkey: self.key }
    }
    fn sge(&self, at: u64) -> [Sge; 1] {
        [Sge { addr: BASE + at, length: MESSAGE as u32, lkey: self.key }]
    }

    pub(super) fn post(&mut self, verb: Verb, at: u64, remote: Remote) -> Result<(), String> {
        let op = match verb {
            Verb::Write => SendOp::Write(remote),
            Verb::Send => SendOp::Send,
            Verb::Read => SendOp::Read(remote),
        };
        let sge = self.sge(at);
        let data = Payload::Sges(&sge);
        let wr = SendWr { wr_id: at, flags: SendFlags::SIGNALED, op, data, ud: None, xrc_srqn: 0 };
        self.qp.stage_send(&wr).map_err(|e| format!("{e:?}"))?;
        self.qp.commit_sends(&mut self.effects);
        Ok(())
    }

    pub(super) fn post_recv(&mut self, at: u64) -> Result<(), String> {
        let wr = RecvWr { wr_id: at, sges: &self.sge(at) };
        self.qp.post_recv(&wr, &mut self.effects).map_err(|e| format!("{e:?}"))
    }

    /// Takes the completions of the send queue, and drops those of receives.
    pub(super) fn take_sends(&mut self) -> Vec<Completion> {
        self.effects
            .completions
            .drain(..)
            .filter(|(cq, _)| *cq == CqRef::Send)
            .map(|(_, c)| c)
            .collect()
    }

    /// The next packet to send.
    pub(super) fn poll(&mut self, now: Time) -> Option<Packet> {
        let memory = PagedMemory { keys: &self.keys, memory: &self.memory };
        let Output::Packet(t) = self.qp.poll_output(&now, &self.keys, &mut self.effects) else {
            return None;
        };
        let payload = crate::memory::owned(&t.payload, &memory).ok()?;
        Some(Packet { headers: *t.headers, payload, traffic_class: t.traffic_class })
    }

    pub(super) fn take(&mut self, now: Time, packet: &Packet) {
        let memory = PagedMemory { keys: &self.keys, memory: &self.memory };
        let packet = adverb_engine::Packet {
            src: gid(1 - self.side),
            dst: gid(self.side),
            traffic_class: packet.traffic_class,
            hop_limit: 64,
            mtu: None,
            headers: packet.headers,
            payload: &packet.payload,
        };
        let mut env = Env {
            clock: &now,
            keys: &self.keys,
            memory: &memory,
            srq: &mut adverb_engine::qp::NoSrq,
            effects: &mut self.effects,
        };
        self.qp.handle_packet(&mut env, &packet);
        while let Some(kept) = self.qp.take_turn(now) {
            self.qp.handle_packet(&mut env, &kept.packet());
        }
    }

    pub(super) fn timeout(&self) -> Option<Time> {
        self.qp.poll_timeout()
    }
    /// Handles the timer, if its time has come.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.timeout().is_some_and(|at| at <= now) {
            self.qp.handle_timeout(now, &mut self.effects);
        }
    }
}
