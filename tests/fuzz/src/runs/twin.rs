//! A node with queue pairs of several types, and everything that a peer or the program can see.
use adverb_device::context::AhAttr;
use adverb_device::interfaces::{Interface, gid_of};
use adverb_device::node::{SimulatedNode, SimulatedWire, Work};
use adverb_device::{Context, Cq, Mapping, Mr, Mw, Pd, Qp, QpInit, Srq, Xrcd};
use adverb_engine::keys::MwType;
use adverb_engine::qp::{Counters, Inside};
use adverb_engine::wr::UdDest;
use adverb_engine::{
    Access, AttrMask, Key, PathMtu, Payload, QpAttr, QpCap, QpState, QpType, RecvWr, SendFlags,
    SendOp, SendWr, Sge, Time, WcFlags,
};
use adverb_link::{AddrIndex, Proof, Route, RxPacket, RxRun, Sink};
use adverb_local::{Delivery, MIN_SLOT, Slot};
use adverb_memory::Pages;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) const OWN: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 1));
pub(super) const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
/// The queue pairs. The second takes its receives from an SRQ.
pub(super) const TYPES: [QpType; 5] =
    [QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud, QpType::XrcRecv];
/// Queue pair number of the peer of the first queue pair. The numbers of the others follow.
pub(super) const PEER_QPN: u32 = 0x0033_0011;
pub(super) const QKEY: u32 = 0x1234;
const QUEUE: u32 = 64;
const FILL: u8 = 0xa5;
/// Bytes of a node's memory. Bytes outside of the zones belong to no key.
const SIZE: usize = 36 << 10;
/// What keys call the first byte of the memory.
const BASE: u64 = 0x10_0000;

/// Offset and length of a registered part of the memory: for any access of peers, for the program's
/// requests and receives, and for READs of peers.
#[derive(Clone, Copy)]
pub(super) struct Zone(usize, usize);
pub(super) const OPEN: Zone = Zone(4 << 10, 8 << 10);
pub(super) const LOCAL: Zone = Zone(16 << 10, 8 << 10);
pub(super) const READ: Zone = Zone(28 << 10, 4 << 10);

impl Zone {
    /// The address that keys see.
    pub(super) fn at(self, offset: u64) -> u64 {
        BASE + self.0 as u64 + offset
    }
    const fn end(self) -> usize {
        self.0 + self.1
    }
}

/// The rights of peers in [`OPEN`] and in a window to it.
const REMOTE: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL);

/// All rights in [`OPEN`].
const ALL: Access = REMOTE.union(Access::LOCAL_WRITE).union(Access::MW_BIND);

/// Packets that arrive together, and what they have in common.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) src: IpAddr,
    pub(super) traffic_class: u8,
    pub(super) proof: Proof,
    pub(super) packets: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Net {
    arriving: Vec<Run>,
    sent: Vec<(Route, Vec<u8>)>,
}

struct TwinWire {
    in_runs: bool,
    net: Arc<Mutex<Net>>,
}

fn lock(net: &Mutex<Net>) -> MutexGuard<'_, Net> {
    net.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimulatedWire for TwinWire {
    fn is_own_address(&self, ip: IpAddr) -> bool {
        ip == OWN
    }
    fn slot(&self) -> Slot {
        MIN_SLOT
    }
    fn send(&self, route: &Route, packet: &[u8]) {
        lock(&self.net).sent.push((*route, packet.to_vec()));
    }
    fn receive(&self, _: usize, sink: Sink<'_>) -> usize {
        let arrived = std::mem::take(&mut lock(&self.net).arriving);
        for run in &arrived {
            let head = RxPacket {
                src: SocketAddr::new(run.src, 4791),
                dst: OWN,
                local: (run.proof != Proof::Relayed).then(AddrIndex::default),
                traffic_class: run.traffic_class,
                hop_limit: 64,
                proof: run.proof,
                bytes: &[],
            };
            let most = if self.in_runs { run.packets.len().max(1) } else { 1 };
            for part in run.packets.chunks(most) {
                sink(RxRun { head, packets: &mut part.iter().map(Vec::as_slice) });
            }
        }
        arrived.iter().map(|run| run.packets.len()).sum()
    }
    fn deliver(&self, _: Slot, _: &Route, _: &[u8]) -> Delivery {
        Delivery::NoOwner
    }
}

/// The attributes that an input chooses.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    pub(super) mtu: PathMtu,
    pub(super) psn: u32,
    pub(super) incoming_reads: u8,
}

/// One of two equal nodes.
pub(super) struct Twin {
    pub(super) sim: SimulatedNode,
    net: Arc<Mutex<Net>>,
    context: Arc<Context>,
    pd: Arc<Pd>,
    pages: Arc<Pages>,
    open: Arc<Mr>,
    /// The regions of [`LOCAL`] and [`READ`].
    others: [Arc<Mr>; 2],
    window: Arc<Mw>,
    cq: Arc<Cq>,
    srqs: [Arc<Srq>; 2],
    pub(super) qps: Vec<Arc<Qp>>,
    setup: Setup,
}

/// Everything that is equal in both nodes.
#[derive(Debug, PartialEq)]
pub(super) struct Seen {
    completions: Vec<String>,
    queue_pairs: Vec<(QpState, Inside, Counters)>,
    counters: Vec<(&'static str, u64)>,
    sent: Vec<(Route, Vec<u8>)>,
    deadline: Option<Time>,
    work: Option<Work>,
    /// The time of the node, which each look at the clock moves on.
    now: Time,
    memory: Vec<u8>,
}

impl Twin {
    pub(super) fn new(in_runs: bool, setup: Setup) -> Twin {
        let net = Arc::<Mutex<Net>>::default();
        let wire = Box::new(TwinWire { in_runs, net: net.clone() });
        let sim = SimulatedNode::new(1, wire).expect("a node");
        let interface = Interface {
            name: "sim".to_owned(),
            index: 1,
            mtu: 1500,
            mac: [2; 6],
            loopback: false,
            outward: true,
            speed: 10_000,
            up: true,
            addresses: vec![OWN],
        };
        let context = Context::simulated(sim.node(), interface).expect("a context");
        let pd = Pd::new(&context).expect("a domain");
        let pages = Arc::new(Pages::new(SIZE).expect("memory"));
        assert!(pages.write_at(0, &[FILL; SIZE]));
        let register = |zone, access| register(&pd, &pages, zone, access);
        let open = register(OPEN, ALL);
        let others = [register(LOCAL, Access::LOCAL_WRITE), register(READ, Access::REMOTE_READ)];
        let window = pd.alloc_mw(MwType::Type2).expect("a window");
        let cq = Cq::new(&context, 4096, None, 0).expect("a CQ");
        let xrcd = Xrcd::open(&context, None).expect("an XRC domain");
        let srqs =
            [None, Some((&xrcd, &cq))].map(|xrc| Srq::new(&pd, QUEUE, 2, 0, xrc).expect("an SRQ"));
        let cap = QpCap {
            max_send_wr: QUEUE,
            max_recv_wr: QUEUE,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 0,
        };
        let made = (0..).zip(TYPES).map(|(at, qp_type)| {
            let init = QpInit {
                qp_type,
                cap,
                signal_all: true,
                send_cq: Some(cq.clone()),
                recv_cq: Some(cq.clone()),
                srq: (at == 1).then(|| srqs[0].clone()),
                xrcd: (qp_type == QpType::XrcRecv).then(|| xrcd.clone()),
            };
            Qp::new(&context, Some(&pd), &init).expect("a queue pair")
        });
        let qps = made.collect();
        let twin =
            Twin { sim, net, context, pd, pages, open, others, window, cq, srqs, qps, setup };
        (0..TYPES.len()).for_each(|at| twin.connect(at));
        twin
    }

    fn destination(&self, at: usize) -> UdDest {
        let dgid = gid_of(&PEER);
        let attr = AhAttr { dgid, is_global: true, port_num: 1, ..AhAttr::default() };
        let av = self.context.resolve(&attr).expect("an address");
        UdDest { av, qpn: PEER_QPN + at as u32, qkey: QKEY }
    }

    /// Brings a queue pair from any state to RTS.
    pub(super) fn connect(&self, at: usize) {
        let qp = &self.qps[at];
        let to = self.destination(at);
        for state in [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts] {
            let attr = QpAttr {
                state,
                port_num: 1,
                access: REMOTE,
                qkey: QKEY,
                av: to.av,
                dest_qpn: to.qpn,
                path_mtu: self.setup.mtu,
                rq_psn: self.setup.psn,
                sq_psn: self.setup.psn,
                max_dest_rd_atomic: self.setup.incoming_reads,
                max_rd_atomic: 2,
                min_rnr_timer: 1,
                timeout: 12,
                retry_cnt: 7,
                rnr_retry: 7,
                ..QpAttr::default()
            };
            let mask = AttrMask::needed(TYPES[at], qp.state(), state);
            qp.modify(&attr, mask).expect("a state");
        }
    }

    /// Registers [`OPEN`] anew. Windows to the old region are no more.
    pub(super) fn renew_open(&mut self) {
        self.open.revoke().expect("a region");
        self.open = register(&self.pd, &self.pages, OPEN, ALL);
    }

    /// The key that an input calls by a small number. Keys below 256 do not exist.
    pub(super) fn key(&self, name: u8) -> Key {
        match name {
            0..4 => self.open.key(),
            4 | 5 => self.others[1].key(),
            6 => self.others[0].key(),
            7..10 => self.window.key(),
            10 => self.window.key() & !0xff | self.window.key().wrapping_add(1) & 0xff,
            _ => Key::from(name),
        }
    }

    fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: LOCAL.at(offset), length, lkey: self.others[0].key() }
    }

    pub(super) fn post_recv(&self, at: usize, wr_id: u64, offset: u64, length: u32) -> bool {
        let sges = &[self.sge(offset, length)];
        let wr = RecvWr { wr_id, sges };
        match at {
            1 => self.srqs[0].post_recv(&wr).is_ok(),
            4 => self.srqs[1].post_recv(&wr).is_ok(),
            _ => self.qps[at].post_recv(&wr).is_ok(),
        }
    }

    pub(super) fn post_send(
        &self,
        at: usize,
        wr_id: u64,
        op: Option<SendOp>,
        offset: u64,
        length: u32,
    ) -> bool {
        let bind = self.window.bind_request(self.open.key(), OPEN.at(offset), 1024, REMOTE);
        let sges = &[self.sge(offset, length)];
        let data = Payload::Sges(if op.is_some() { sges } else { &[] });
        let ud = Some(self.destination(at));
        let flags = SendFlags::empty();
        let wr =
            SendWr { wr_id, flags, op: op.unwrap_or(SendOp::BindMw(bind)), data, ud, xrc_srqn: 0 };
        let posted = self.qps[at].post_sends(&[wr], false).is_ok();
        if posted && op.is_none() {
            self.window.set_key(bind.bound_key());
        }
        posted
    }

    /// The number of the SRQ that XRC packets name.
    pub(super) fn srqn(&self) -> u32 {
        self.srqs[1].number()
    }

    pub(super) fn arrive(&self, run: Run) {
        lock(&self.net).arriving.push(run);
    }

    pub(super) fn seen(&self) -> Seen {
        let completions = self.cq.waiting().into_iter().map(|mut c| {
            // Causes and invalidated keys name random keys.
            c.cause = None;
            if c.flags.contains(WcFlags::WITH_INV) {
                c.imm = 0;
            }
            format!("{c:?}")
        });
        let mut memory = vec![0; SIZE];
        assert!(self.pages.read_at(0, &mut memory));
        for kept in [0..OPEN.0, OPEN.end()..LOCAL.0, LOCAL.end()..SIZE] {
            let same = memory[kept.clone()] == [FILL; SIZE][kept.clone()];
            assert!(same, "bytes outside of the writable zones have changed: {kept:?}");
        }
        Seen {
            completions: completions.collect(),
            queue_pairs: self
                .qps
                .iter()
                .map(|qp| (qp.state(), qp.inside(), qp.counters()))
                .collect(),
            counters: self.sim.node().named_counters(),
            sent: lock(&self.net).sent.clone(),
            deadline: self.sim.deadline(),
            work: self.sim.work(),
            now: self.sim.node().now(),
            memory,
        }
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        // The node's tables and its objects hold each other until the objects are destroyed.
        let destroyed = self.qps.iter().map(|qp| qp.destroy());
        let destroyed = destroyed.chain(self.srqs.iter().map(Srq::destroy));
        let failed = destroyed.chain([self.window.dealloc()]).filter(Result::is_err).count();
        assert!(failed == 0 || std::thread::panicking(), "an object stays");
    }
}

fn register(pd: &Arc<Pd>, pages: &Arc<Pages>, zone: Zone, access: Access) -> Arc<Mr> {
    let mapping = Mapping::pages(pages.clone());
    let Zone(offset, len) = zone;
    pd.reg_mapping(&mapping, offset as u64, len as u64, zone.at(0), access).expect("a region")
}
