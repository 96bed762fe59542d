//! A queue pair with memory, and the expectations of the consumer.
use super::arena::{Arena, BASE, Buffer, LOCAL, OF_OTHER_PD, OPEN, READ, Zone};
use crate::input::Input;
use adverb_engine::keys::{MwType, Region, RegionKind};
use adverb_engine::qp::NoRecv;
use adverb_engine::{
    Access, AddressVector, AttrMask, CqRef, Effects, Gid, Key, KeyTable, Limits, PathMtu, PdId, Qp,
    QpAttr, QpCap, QpConfig, QpState, QpType, Qpn, RecvSource, RecvWqe, RecvWr, Sge, WcStatus,
    wr::SgeList,
};
use std::collections::VecDeque;

pub const PD: PdId = PdId(7);
const OTHER_PD: PdId = PdId(8);
pub const QPN: [Qpn; 2] = [0x11, 0x22];
pub const QKEY: u32 = 0x1234;
pub const SRQN: u32 = 9;
/// Depth of each queue.
pub const DEPTH: u32 = 16;
const LIMITS: Limits = Limits {
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

pub fn gid(side: usize) -> Gid {
    Gid::from_ipv4([10, 0, 0, side as u8 + 1])
}

/// A shared receive queue with a record of the taken receives.
#[derive(Debug, Default)]
pub struct Shared {
    posted: VecDeque<RecvWqe>,
    taken: VecDeque<u64>,
    /// The protection domain of XRC packets.
    pd: Option<PdId>,
}

impl RecvSource for Shared {
    fn pop(&mut self, xrc_srqn: Option<u32>) -> Result<RecvWqe, NoRecv> {
        if xrc_srqn.is_some_and(|n| n != SRQN) {
            return Err(NoRecv::NoSuchSrq);
        }
        let wqe = self.posted.pop_front().ok_or(NoRecv::Empty)?;
        self.taken.push_back(wqe.wr_id);
        Ok(wqe)
    }
    fn pd(&mut self, xrc_srqn: u32) -> Option<PdId> {
        self.pd.filter(|_| xrc_srqn == SRQN)
    }
}

/// The keys of a side, which the peer may know.
#[derive(Clone, Copy, Debug)]
pub struct Keys {
    pub open: Key,
    pub read: Key,
    pub local: Key,
    pub of_other_pd: Key,
    pub window: Key,
}

#[derive(Debug)]
pub struct Side {
    pub qp: Qp,
    pub table: KeyTable,
    pub keys: Keys,
    pub arena: Arena,
    pub srq: Shared,
    pub effects: Effects,
    pub attr: QpAttr,
    /// Requests in order of posting, each with the signaled flag.
    sends: VecDeque<(u64, bool)>,
    recvs: VecDeque<u64>,
    next_id: u64,
}

fn region(pd: PdId, zone: Zone, access: Access, kind: RegionKind) -> Region {
    Region { pd, access, iova: zone.0, len: zone.1.into(), addr: zone.0, kind }
}

fn open_region() -> Region {
    let rights = Access::from_bits_truncate(0x31f);
    region(PD, OPEN, rights, RegionKind::Mapped)
}

impl Side {
    /// A side in RESET, as the input says.
    pub fn new(
        input: &mut Input<'_>,
        types: [QpType; 2],
        side: usize,
        mtu: PathMtu,
        psn: u32,
    ) -> Side {
        let mut table = KeyTable::new();
        let all = Access::from_bits_truncate(0x31f);
        let mut add = |region: Region, key: u32| table.register(region, key).expect("a key");
        let open = add(open_region(), 0x5a00_1011);
        let read = add(region(PD, READ, Access::REMOTE_READ, RegionKind::OnDemand), 0x5a00_2022);
        let local = add(region(PD, LOCAL, Access::LOCAL_WRITE, RegionKind::Mapped), 0x5a00_3033);
        let of_other_pd = add(region(OTHER_PD, OF_OTHER_PD, all, RegionKind::Mapped), 0x5a00_4044);
        let window = table.alloc_mw(PD, MwType::Type2, 0x5a00_5055).expect("a window");
        let uses_srq = types[side] == QpType::XrcRecv || types[side] != QpType::Uc && input.flag();
        let qp = Qp::new(QpConfig {
            qpn: QPN[side],
            qp_type: types[side],
            pd: PD,
            cap: QpCap {
                max_send_wr: DEPTH,
                max_recv_wr: DEPTH,
                max_send_sge: 3,
                max_recv_sge: 3,
                max_inline_data: 64,
            },
            signal_all: false,
            uses_srq,
            port_mtu: PathMtu::Mtu1024,
            max_inflight: QpConfig::MAX_INFLIGHT,
            counted: false,
        })
        .expect("memory for a queue pair");
        let (out, incoming) = (input.below(5) as u8, input.below(5) as u8);
        let attr = QpAttr {
            path_mtu: mtu,
            qkey: QKEY,
            rq_psn: psn + (1 - side as u32),
            sq_psn: psn + side as u32,
            dest_qpn: QPN[1 - side],
            access: Access::from_bits_truncate(if input.below(4) == 0 {
                input.u32()
            } else {
                0x30f
            }),
            av: AddressVector {
                sgid: gid(side),
                dgid: gid(1 - side),
                is_global: true,
                hop_limit: 64,
                port_num: 1,
                ..AddressVector::default()
            },
            port_num: 1,
            max_rd_atomic: out,
            max_dest_rd_atomic: incoming,
            min_rnr_timer: input.u8() & 31,
            timeout: input.u8() & 31,
            retry_cnt: input.u8() & 7,
            rnr_retry: input.u8() & 7,
            ..QpAttr::default()
        };
        Side {
            qp,
            table,
            keys: Keys { open, read, local, of_other_pd, window },
            arena: Arena::new(),
            srq: Shared { pd: (types[side] == QpType::XrcRecv).then_some(PD), ..Shared::default() },
            effects: Effects::default(),
            attr,
            sends: VecDeque::new(),
            recvs: VecDeque::new(),
            next_id: 1,
        }
    }

    /// Moves one step towards a state. A refusal is allowed.
    pub fn step_to(&mut self, state: QpState) {
        let from = self.qp.state();
        let mask = AttrMask::needed(self.qp.config().qp_type, from, state);
        let attr = QpAttr { state, ..self.attr };
        let moved = self.qp.modify(&attr, mask, &LIMITS, &mut self.effects).is_ok();
        assert_eq!(self.qp.state() == state, moved || from == state, "{from:?} to {state:?}");
        if moved && state == QpState::Reset {
            self.sends.clear();
            self.recvs.clear();
            self.srq.taken.clear();
            self.arena.buffers.borrow_mut().clear();
            let of_srq: Vec<_> = self.srq.posted.iter().cloned().collect();
            for wqe in of_srq {
                self.open_buffers(wqe.wr_id, wqe.sges.as_slice());
            }
        }
        self.settle();
    }

    fn open_buffers(&self, id: u64, sges: &[Sge]) {
        let new = sges.iter().map(|s| Buffer { id, addr: s.addr, len: s.length });
        self.arena.buffers.borrow_mut().extend(new);
    }

    /// The id of the next request.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// A request was staged; `sinks` is the memory for its answer.
    pub fn staged(&mut self, id: u64, signaled: bool, sinks: &[Sge]) {
        self.sends.push_back((id, signaled));
        self.open_buffers(id, sinks);
    }

    pub fn commit(&mut self) {
        self.qp.commit_sends(&mut self.effects);
        self.settle();
    }

    /// Posts a receive, to the SRQ if the queue pair uses an SRQ.
    pub fn recv(&mut self, sges: &[Sge]) {
        let id = self.next_id();
        if self.qp.config().uses_srq {
            if self.srq.posted.len() < DEPTH as usize {
                self.srq.posted.push_back(RecvWqe {
                    wr_id: id,
                    pd: PD,
                    sges: SgeList::new(sges),
                    tagged: None,
                });
                self.open_buffers(id, sges);
            }
        } else {
            self.recvs.push_back(id);
            self.open_buffers(id, sges);
            if self.qp.post_recv(&RecvWr { wr_id: id, sges }, &mut self.effects).is_err() {
                self.recvs.pop_back();
                self.arena.buffers.borrow_mut().retain(|b| b.id != id);
            }
        }
        self.settle();
    }

    /// Deregisters the region [`OPEN`], or registers it again.
    pub fn flip_open(&mut self) {
        if self.arena.open.get() {
            self.arena.open.set(self.table.deregister(self.keys.open).is_err());
        } else {
            let fresh = self.keys.open.wrapping_add(0x101);
            self.keys.open = self.table.register(open_region(), fresh).expect("a key");
            self.arena.open.set(true);
        }
    }

    /// Handles the effects of a step. Every completion must be due.
    pub fn settle(&mut self) {
        if let Some(op) = self.effects.key_op.take() {
            self.table.apply(&op).expect("it was checked");
        }
        for (cq, c) in std::mem::take(&mut self.effects.completions) {
            assert_eq!(c.qpn, self.qp.config().qpn);
            assert_eq!(c.cause.is_some(), c.status != WcStatus::Success, "{c:?}");
            match cq {
                CqRef::Send => loop {
                    let due = self.sends.pop_front();
                    let (id, signaled) =
                        due.unwrap_or_else(|| panic!("nothing to complete: {c:?}"));
                    if id == c.wr_id {
                        break;
                    }
                    assert!(!signaled, "request {id} is passed over by {c:?}");
                },
                CqRef::Recv | CqRef::XrcSrq(_) => {
                    let queue = if self.qp.config().uses_srq {
                        &mut self.srq.taken
                    } else {
                        &mut self.recvs
                    };
                    assert_eq!(queue.pop_front(), Some(c.wr_id), "{c:?}");
                }
            }
            self.arena.buffers.borrow_mut().retain(|b| b.id != c.wr_id);
        }
        self.effects.events.clear();
        let (inside, attr) = (self.qp.inside(), &self.attr);
        let places = usize::from(attr.max_dest_rd_atomic);
        assert!(inside.answers <= 2 * places + 2 && inside.saved <= places, "{inside:?}");
        assert!(inside.kept.iter().all(|kept| *kept <= 64), "{inside:?}");
        assert!(inside.reads <= usize::from(attr.max_rd_atomic.max(1)), "{inside:?}");
    }

    /// Ends the queue pair: every posted request has completed, or needs no completion.
    pub fn finish(&mut self) {
        self.commit();
        if self.qp.state() == QpState::Reset {
            return;
        }
        self.step_to(QpState::Err);
        assert!(
            self.sends.iter().all(|(_, signaled)| !signaled),
            "never completed: {:?}",
            self.sends
        );
        assert!(
            self.recvs.is_empty() && self.srq.taken.is_empty(),
            "{:?} {:?}",
            self.recvs,
            self.srq.taken
        );
    }

    /// A scatter/gather list, mostly within a zone.
    pub fn sges(&self, input: &mut Input<'_>, zone: Zone, key: Key, max: u32) -> ([Sge; 3], usize) {
        let mut out = [Sge::default(); 3];
        let n = input.below(4);
        for sge in &mut out[..n] {
            let length = u32::from(input.u16()) % (max + 1);
            let room = u64::from(zone.1 - length.min(zone.1));
            *sge = Sge { addr: zone.0 + u64::from(input.u16()) % (room + 1), length, lkey: key };
            match input.below(16) {
                14 => sge.lkey = self.keys.of_other_pd,
                15 => sge.addr = BASE + u64::from(input.u16()),
                _ => {}
            }
        }
        (out, n)
    }
}
