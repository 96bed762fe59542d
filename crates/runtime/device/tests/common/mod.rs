//! Two connected queue pairs in one process, on the loopback device. `ADVERB_PATH` selects the
//! path.
#![allow(dead_code, reason = "each test file uses its part")]
pub mod child;
pub mod operations;
pub mod party;

use adverb_device::buffer::Buffer;
use adverb_device::context::AhAttr;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{
    Access, AddressVector, AttrMask, Completion, PathMtu, Payload, QpAttr, QpCap, QpState, QpType,
    RecvWr, SendFlags, SendOp, SendWr, Sge, WcStatus,
};
use adverb_device::{CompChannel, Context, Cq, Error, Pd, Qp, QpInit, device};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub struct QpEnd {
    pub context: Arc<Context>,
    pub pd: Arc<Pd>,
    pub channel: Arc<CompChannel>,
    pub cq: Arc<Cq>,
    pub qp: Arc<Qp>,
    pub pages: Buffer,
}

pub const SIZE: usize = 4 << 20;
/// Q_Key of datagram queue pairs.
pub const QKEY: u32 = 0x1122_3344;
/// First PSN in both directions.
pub const PSN: u32 = 0x00ff_fff0;
/// A test without progress for this time counts as hanging.
pub const HANG_LIMIT: Duration = Duration::from_secs(60);
/// The rights of a peer.
pub const REMOTE: Access =
    Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);
/// All packets cross the network.
pub const WIRE: (&str, &str) = ("ADVERB_PATH", "wire");
/// Room for one request in each queue.
pub const SMALL: QpCap =
    QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };

pub fn loopback() -> Arc<device::Device> {
    device::loopback().unwrap().expect("a loopback device")
}

/// Runs a single test at a time, because the tests of a file share a process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until a condition holds. The thread sleeps between two looks.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + HANG_LIMIT;
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The path to an address of this device.
pub fn path_to(context: &Context, gid_index: usize) -> Result<AddressVector, Error> {
    context.resolve(&AhAttr {
        dgid: context.gid(1, gid_index)?,
        sgid_index: gid_index as u8,
        is_global: true,
        port_num: 1,
        hop_limit: 64,
        ..AhAttr::default()
    })
}

/// The path to an IPv4 address of this device.
pub fn own_path(context: &Context) -> AddressVector {
    let index = context.device().gids().iter().position(|g| g.ipv4().is_some()).unwrap();
    path_to(context, index).unwrap()
}

/// The attributes of a connection to a queue pair.
pub fn attributes(av: AddressVector, dest_qpn: u32, path_mtu: PathMtu) -> QpAttr {
    QpAttr {
        av,
        path_mtu,
        dest_qpn,
        access: REMOTE,
        qkey: QKEY,
        port_num: 1,
        rq_psn: PSN,
        sq_psn: PSN,
        max_rd_atomic: 16,
        max_dest_rd_atomic: 16,
        min_rnr_timer: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    }
}

/// Moves a queue pair from RESET to RTS.
pub fn to_rts(qp: &Qp, attr: &QpAttr) -> Result<(), Error> {
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        let mask = AttrMask::needed(qp.qp_type(), qp.state(), state);
        qp.modify(&QpAttr { state, ..*attr }, mask)?;
    }
    Ok(())
}

/// Moves a queue pair to a state that needs no attributes.
pub fn to_state(qp: &Qp, state: QpState) {
    qp.modify(&QpAttr { state, ..QpAttr::default() }, AttrMask::STATE).unwrap();
}

/// Waits for the next `n` completions. A long wait leaves the processor to the peer between two
/// polls.
pub fn wait(cq: &Arc<Cq>, n: usize) -> Vec<Completion> {
    let (mut got, begin) = (Vec::new(), Instant::now());
    while got.len() < n {
        let waits = cq.poll(n - got.len(), |c| got.push(c)).unwrap() == 0;
        let waited = begin.elapsed();
        assert!(waited < HANG_LIMIT, "{} of {n} completions: {got:?}", got.len());
        if waits && waited > Duration::from_millis(2) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    got
}

/// A request with data in registered memory.
pub fn request<'a>(wr_id: u64, flags: SendFlags, op: SendOp, sges: &'a [Sge]) -> SendWr<'a> {
    SendWr { wr_id, flags, op, data: Payload::Sges(sges), ud: None, xrc_srqn: 0 }
}

impl QpEnd {
    pub fn new(qp_type: QpType) -> QpEnd {
        QpEnd::with_cq(qp_type, 4096)
    }

    pub fn with_cq(qp_type: QpType, cqe: u32) -> QpEnd {
        let context = loopback().open().unwrap();
        let pd = Pd::new(&context).unwrap();
        let channel = CompChannel::new(&context).unwrap();
        let cq = Cq::new(&context, cqe, Some(&channel), 0).unwrap();
        let qp = Qp::new(&context, Some(&pd), &init(qp_type, &cq)).unwrap();
        let pages = Buffer::new(&pd, SIZE, Access::LOCAL_WRITE | REMOTE).unwrap();
        QpEnd { context, pd, channel, cq, qp, pages }
    }

    /// Another RC queue pair, with a change to the usual parameters.
    pub fn another_qp(&self, change: impl FnOnce(&mut QpInit)) -> Arc<Qp> {
        let mut init = init(QpType::Rc, &self.cq);
        change(&mut init);
        Qp::new(&self.context, Some(&self.pd), &init).unwrap()
    }

    /// An end with a datagram queue pair in RTS.
    pub fn datagrams() -> QpEnd {
        let end = QpEnd::new(QpType::Ud);
        end.connect_to(0, PathMtu::Mtu1024);
        end
    }

    pub fn connect(&self, peer: &Qp, mtu: PathMtu) {
        self.connect_to(peer.number(), mtu);
    }

    /// Connects to a queue pair of this host, by its number.
    pub fn connect_to(&self, dest_qpn: u32, mtu: PathMtu) {
        self.connect_by(own_path(&self.context), dest_qpn, mtu);
    }

    /// Connects to a queue pair over a path that the caller chooses.
    pub fn connect_by(&self, av: AddressVector, dest_qpn: u32, mtu: PathMtu) {
        to_rts(&self.qp, &attributes(av, dest_qpn, mtu)).unwrap();
    }

    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        self.pages.sge(offset, len)
    }

    /// A place in the memory of this end, for its peer.
    pub fn remote(&self, offset: usize) -> Remote {
        Remote { va: self.pages.addr() + offset as u64, rkey: self.pages.key() }
    }

    pub fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(self.pages.write_at(offset, bytes));
    }

    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(self.pages.read_at(offset, &mut bytes));
        bytes
    }

    pub fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.get(offset, 8).try_into().unwrap())
    }

    pub fn send(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        let mut chain = self.qp.send_chain().unwrap();
        chain.stage(&request(wr_id, SendFlags::SIGNALED, op, sges)).unwrap();
        chain.commit();
    }

    pub fn recv(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvWr { wr_id, sges }).unwrap();
    }

    pub fn wait(&self, n: usize) -> Vec<Completion> {
        wait(&self.cq, n)
    }

    /// Performs a request, waits for its completion, and returns the status.
    pub fn perform(&self, op: SendOp, sges: &[Sge]) -> WcStatus {
        self.send(1, op, sges);
        self.wait(1)[0].status
    }
}

/// The usual parameters of a queue pair.
fn init(qp_type: QpType, cq: &Arc<Cq>) -> QpInit {
    QpInit {
        qp_type,
        cap: QpCap {
            max_send_wr: 512,
            max_recv_wr: 512,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 256,
        },
        signal_all: false,
        send_cq: Some(cq.clone()),
        recv_cq: Some(cq.clone()),
        srq: None,
        xrcd: None,
    }
}

/// Connects two ends to each other.
pub fn join(a: &QpEnd, b: &QpEnd, mtu: PathMtu) {
    a.connect(&b.qp, mtu);
    b.connect(&a.qp, mtu);
}

pub fn pair(qp_type: QpType, mtu: PathMtu) -> (QpEnd, QpEnd) {
    let (a, b) = (QpEnd::new(qp_type), QpEnd::new(qp_type));
    join(&a, &b, mtu);
    (a, b)
}

/// A pair of RC queue pairs.
pub fn rc() -> (QpEnd, QpEnd) {
    pair(QpType::Rc, PathMtu::Mtu1024)
}

pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed).collect()
}
