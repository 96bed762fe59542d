//! Builds a world, and connects its queue pairs.
use super::{Device, OTHER_PD, PD, QKEY, QPN, Queue, SharedQueue, World, WorldEnd, XRC_SRQN};
use crate::config::{Config, Link, Service};
use crate::memory::{Arena, SHARED};
use crate::model::keys::Keys;
use crate::model::{Check, Flow, Rx, Violation, cq::NaiveCq};
use crate::net::{Net, gid};
use crate::report::Record;
use crate::rng::Rng;
use adverb_engine::keys::{MwType, Region, RegionKind};
use adverb_engine::{
    Access, AddressVector, AttrMask, Cq, Effects, Key, KeyTable, Limits, PathMtu, PdId, Qp, QpAttr,
    QpCap, QpConfig, QpState, QpType, Srq, Time,
};
use std::collections::VecDeque;

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
/// All rights of a peer, and the right to bind windows.
pub(crate) const ALL: Access = super::QP_ACCESS.union(Access::LOCAL_WRITE).union(Access::MW_BIND);
/// Bytes of the arena, all open to the local key.
const ARENA: u64 = 1 << 28;
const START: Time = Time(1_000_000);

fn device(number: usize, rng: &mut Rng) -> Device {
    let base = (number as u64 + 1) << 32;
    let arena = Arena::new(base);
    let (mut keys, mut naive) = (KeyTable::new(), Keys::default());
    let mut region = |rng: &mut Rng, pd: PdId, access: Access, iova: u64, len: u64| {
        let kind = RegionKind::Mapped;
        register(&mut keys, &mut naive, rng, Region { pd, access, iova, len, addr: base, kind })
    };
    let all = region(rng, PD, Access::LOCAL_WRITE, base, ARENA);
    // Each key has its own address space, apart from the addresses of memory.
    let good = region(rng, PD, ALL, 0x7000_0000_0000 + base, SHARED);
    let read_only = region(rng, PD, Access::REMOTE_READ, 0x10_0000, SHARED);
    let other_pd = region(rng, OTHER_PD, ALL, base, SHARED);
    let volatile = region(rng, PD, ALL, VOLATILE, SHARED);
    let on_demand =
        [(Access::LOCAL_WRITE, base, ARENA), (ALL - Access::MW_BIND, ON_DEMAND, SHARED)];
    let on_demand = on_demand.map(|(access, iova, len)| {
        let kind = RegionKind::OnDemand;
        register(&mut keys, &mut naive, rng, Region { pd: PD, access, iova, len, addr: base, kind })
    });
    arena.punch(base + SHARED - 3000);
    let windows = [0, 1].map(|_| {
        let key = keys.alloc_mw(PD, MwType::Type2, rng.next() as u32).unwrap_or(0);
        naive.window(key, PD);
        key
    });
    let fast = [0, 1].map(|_| {
        let key = keys.alloc_fast(PD, 3, rng.next() as u32).unwrap_or(0);
        naive.fast(key, PD);
        key
    });
    let volatile = Some(volatile);
    let history = Vec::new();
    Device {
        arena,
        keys,
        naive,
        history,
        all,
        good,
        read_only,
        other_pd,
        volatile,
        on_demand,
        windows,
        fast,
    }
}

/// First address of the on-demand region of the shared area.
const ON_DEMAND: u64 = 0x4000_0000_0000;
/// First address of the volatile region, in its own address space.
pub(crate) const VOLATILE: u64 = 0x6000_0000_0000;

fn register(keys: &mut KeyTable, naive: &mut Keys, rng: &mut Rng, region: Region) -> Key {
    // The regions of a world are valid, so no registration is refused.
    let key = keys.register(region, rng.next() as u32).unwrap_or(0);
    naive.region(key, &region);
    key
}

impl World {
    pub(crate) fn register_volatile(&mut self, d: usize) {
        let device = &mut self.devices[d];
        let (addr, kind) = (device.arena.base, RegionKind::Mapped);
        let region = Region { pd: PD, access: ALL, iova: VOLATILE, len: SHARED, addr, kind };
        let key = register(&mut device.keys, &mut device.naive, &mut self.rng, region);
        device.volatile = Some(key);
    }
}

fn kinds(service: Service) -> [QpType; 2] {
    match service {
        Service::Rc => [QpType::Rc; 2],
        Service::Uc => [QpType::Uc; 2],
        Service::Ud => [QpType::Ud; 2],
        Service::Xrc => [QpType::XrcSend, QpType::XrcRecv],
    }
}

fn end(config: &Config, link: &Link, q: usize) -> WorldEnd {
    let side = q % 2;
    let kind = kinds(link.service)[side];
    let device = link.devices[side];
    let uses_srq = link.srq || kind == QpType::XrcRecv;
    let cap = QpCap {
        max_send_wr: link.depth[0],
        max_recv_wr: link.depth[1],
        max_send_sge: link.sges,
        max_recv_sge: link.sges,
        max_inline_data: link.inline,
    };
    let port_mtu = PathMtu::Mtu4096;
    let engine = Qp::new(QpConfig {
        qpn: QPN + q as u32,
        qp_type: kind,
        pd: PD,
        cap,
        signal_all: link.signal_all,
        uses_srq,
        port_mtu,
        max_inflight: link.max_inflight,
        counted: false,
    })
    .expect("memory for a queue pair");
    WorldEnd {
        engine,
        effects: Effects::default(),
        kind,
        device,
        peer: q ^ 1,
        cqs: link.cqs[side].map(|c| device * config.cqs.len() + c),
        srq: link.srq.then_some(device * 2),
        flow: Flow::default(),
        rx: Rx::default(),
        early: Vec::new(),
        pump_at: None,
        connect_at: None,
        doomed: false,
        marked: false,
        mtu: match link.lane {
            Some(bytes) => u64::from(bytes),
            None => (if kind == QpType::Ud { port_mtu } else { link.mtu }).bytes() as u64,
        },
    }
}

pub(super) fn build(config: &Config) -> World {
    let mut rng = Rng::new(config.seed ^ 0xd0);
    let devices = (0..config.devices).map(|n| device(n, &mut rng)).collect();
    let queue = |cqe: &u32| Queue {
        cq: Cq::new(*cqe).expect("memory"),
        naive: NaiveCq::new(*cqe),
        events: 0,
    };
    let queues = (0..config.devices).flat_map(|_| config.cqs.iter().map(queue)).collect();
    let srq = |_| SharedQueue {
        srq: Srq::new(PD, config.srq_depth, 5),
        queue: VecDeque::new(),
        limit: 0,
        taken: Vec::new(),
    };
    let ends = config.links.iter().enumerate();
    let ends =
        ends.flat_map(|(l, link)| [2 * l, 2 * l + 1].map(|q| end(config, link, q))).collect();
    let mut world = World {
        now: START,
        step: 0,
        begun: 0,
        devices,
        queues,
        srqs: (0..config.devices * 2).map(srq).collect(),
        ends,
        epochs: vec![0; config.links.len()],
        net: Net::new(config.devices, config.faults, config.seed),
        rng,
        next_id: 1,
        winding_up: false,
        record: Record::default(),
        capture: None,
        completions: 0,
        packets: 0,
        config: config.clone(),
    };
    for link in 0..config.links.len() {
        let psn = config.links[link].psn;
        for (side, psn) in psn.into_iter().enumerate() {
            let end = &mut world.ends[2 * link + side];
            end.flow.base = psn;
            end.connect_at = Some(START);
        }
        world.epochs[link] = 1;
    }
    world
}

impl World {
    pub(crate) fn path(&self, q: usize, to: usize) -> AddressVector {
        AddressVector {
            sgid: gid(self.ends[q].device),
            dgid: gid(self.ends[to].device),
            is_global: true,
            hop_limit: 64,
            port_num: 1,
            ..AddressVector::default()
        }
    }

    /// Moves a queue pair to another state, with the attributes that the transition needs.
    pub(crate) fn modify(&mut self, q: usize, attr: &QpAttr) -> Check {
        let end = &mut self.ends[q];
        let from = end.engine.state();
        let mask = AttrMask::needed(end.kind, from, attr.state);
        let result = end.engine.modify(attr, mask, &LIMITS, &mut end.effects);
        if let Err(e) = result {
            return Err(Violation(format!(
                "queue pair {q} from {from:?} to {:?} refused: {e}",
                attr.state
            )));
        }
        self.settle(q)
    }

    /// Connects a queue pair: from RESET to RTS.
    pub(crate) fn connect(&mut self, q: usize) -> Check {
        if self.ends[q].engine.state() != QpState::Reset {
            // Meanwhile the consumer moved the queue pair to ERR.
            return Ok(());
        }
        let link = self.config.links[q / 2].clone();
        let peer = self.ends[q].peer;
        let attr = QpAttr {
            path_mtu: link.mtu,
            qkey: QKEY,
            rq_psn: self.ends[peer].flow.base,
            sq_psn: self.ends[q].flow.base,
            dest_qpn: QPN + peer as u32,
            access: super::QP_ACCESS,
            av: self.path(q, peer),
            port_num: 1,
            max_rd_atomic: link.rd_atomic,
            max_dest_rd_atomic: link.rd_atomic,
            min_rnr_timer: link.rnr_timer,
            timeout: link.timeout,
            retry_cnt: link.retry_cnt,
            rnr_retry: link.rnr_retry,
            ..QpAttr::default()
        };
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.modify(q, &QpAttr { state, ..attr })?;
            if let (QpState::Rtr, Some(mtu)) = (state, link.lane) {
                self.ends[q].engine.leave_network(mtu);
            }
        }
        self.note(|| format!("queue pair {q} connects"));
        self.wake(q);
        Ok(())
    }

    pub(crate) fn srq_by_number(device: usize, srqn: u32) -> Option<usize> {
        (srqn == XRC_SRQN + device as u32).then_some(device * 2 + 1)
    }
}
