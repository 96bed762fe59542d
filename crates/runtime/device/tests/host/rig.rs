//! One end of a test: a device in this process, with memory of every kind and queue pairs.
mod orders;
pub use orders::Words;

pub use crate::common::{HANG_LIMIT, request};
use crate::common::{attributes, loopback, own_path, to_rts, to_state, wait};
use adverb_device::buffer::Buffer;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::keys::MwType;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{
    Access, AttrMask, Completion, PathMtu, Payload, QpAttr, QpCap, QpState, QpType, RecvWr,
    SendFlags, SendOp, SendWr, Sge, WcStatus,
};
use adverb_device::qp::{PlainData, PlainOp, PlainPost};
use adverb_device::{
    CompChannel, Context, Cq, Dm, Errno, Mapping, Mr, Mw, Pd, Qp, QpInit, Srq, Xrcd,
};
use adverb_memory::{Pages, SharedFile};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The default access rights of a queue pair for its peer.
pub const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND)
    .union(Access::FLUSH_GLOBAL);

/// The kind of memory of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pages that the device allocates.
    Buffer,
    /// A page-aligned allocation of a program, which peers map.
    Block,
    /// Any other memory of a program.
    Private,
    /// Memory of the program, registered on demand.
    OnDemand,
    /// Device memory.
    Dm,
    /// No memory.
    Null,
}

pub const KINDS: [Kind; 3] = [Kind::Buffer, Kind::Block, Kind::Private];

#[derive(Debug)]
enum Bytes {
    Buffer(Buffer),
    Mapping(Mapping),
    Dm(Arc<Dm>),
    None,
}

/// Registered memory.
#[derive(Debug)]
pub struct Region {
    bytes: Bytes,
    mr: Arc<Mr>,
    /// First address, as the work requests name the memory.
    pub addr: u64,
}

impl Region {
    pub fn key(&self) -> u32 {
        self.mr.key()
    }
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge { addr: self.addr.wrapping_add(offset as u64), length: len as u32, lkey: self.key() }
    }
    pub fn put(&self, offset: usize, bytes: &[u8]) {
        match &self.bytes {
            Bytes::Buffer(b) => assert!(b.write_at(offset, bytes)),
            Bytes::Mapping(m) => assert!(m.write_at(offset, bytes)),
            Bytes::Dm(dm) => dm.write(offset as u64, bytes).unwrap(),
            Bytes::None => {}
        }
    }
    pub fn get(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match &self.bytes {
            Bytes::Buffer(b) => assert!(b.read_at(offset, &mut bytes)),
            Bytes::Mapping(m) => assert!(m.read_at(offset, &mut bytes)),
            Bytes::Dm(dm) => dm.read(offset as u64, &mut bytes).unwrap(),
            Bytes::None => {}
        }
        bytes
    }
    pub fn word(&self, offset: usize) -> u64 {
        u64::from_ne_bytes(self.get(offset, 8).try_into().unwrap())
    }
    pub fn dereg(&self) {
        self.mr.dereg().unwrap();
    }
}

/// The properties of a queue pair. They are plain numbers, because they cross a pipe.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub ty: QpType,
    pub access: Access,
    pub timeout: u8,
    pub retry: u8,
    pub rnr_retry: u8,
    /// The queue pair uses the SRQ of the rig.
    pub srq: bool,
}

impl Default for Shape {
    fn default() -> Self {
        // A loss may cost a whole timeout.
        let timeout = if std::env::var_os("ADVERB_FAULT").is_some() { 14 } else { 16 };
        Shape { ty: QpType::Rc, access: ALL, timeout, retry: 7, rnr_retry: 7, srq: false }
    }
}

const TYPES: [QpType; 3] = [QpType::Rc, QpType::XrcSend, QpType::XrcRecv];

impl Shape {
    pub fn words(&self) -> String {
        let ty = TYPES.iter().position(|t| *t == self.ty).unwrap();
        format!(
            "{ty} {} {} {} {} {}",
            self.access.bits(),
            self.timeout,
            self.retry,
            self.rnr_retry,
            u8::from(self.srq)
        )
    }
    fn parse(words: &mut Words<'_>) -> Self {
        Shape {
            ty: TYPES[words.next::<usize>()],
            access: Access::from_bits_truncate(words.next()),
            timeout: words.next(),
            retry: words.next(),
            rnr_retry: words.next(),
            srq: words.next::<u8>() == 1,
        }
    }
}

pub struct Rig {
    context: Arc<Context>,
    /// The queue pairs belong to the first protection domain. The second is a other domain.
    pds: [Arc<Pd>; 2],
    channel: Arc<CompChannel>,
    pub cq: Arc<Cq>,
    xrcd: Arc<Xrcd>,
    pub srq: Arc<Srq>,
    xrc_srq: Arc<Srq>,
    pub qps: Vec<(Arc<Qp>, Shape)>,
    pub regions: Vec<Region>,
    windows: Vec<Arc<Mw>>,
    /// Number of chains posted so far.
    posts: AtomicU32,
}

/// Bytes after which [`pattern`] repeats: a prime, so that bytes in the place of other packets of
/// the same message differ.
const PERIOD: usize = 65_521;

/// `len` pseudorandom bytes. They depend on `seed` alone.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len.min(PERIOD) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len.min(PERIOD));
    while out.len() < len {
        out.extend_from_within(..PERIOD.min(len - out.len()));
    }
    out
}

/// Whether all traffic crosses the network.
pub fn on_wire() -> bool {
    std::env::var("ADVERB_PATH").is_ok_and(|path| path == "wire")
}

impl Rig {
    pub fn open() -> Rig {
        let context = loopback().open().unwrap();
        let pds = [Pd::new(&context).unwrap(), Pd::new(&context).unwrap()];
        let channel = CompChannel::new(&context).unwrap();
        let cq = Cq::new(&context, 8192, Some(&channel), 0).unwrap();
        let xrcd = Xrcd::open(&context, None).unwrap();
        let srq = Srq::new(&pds[0], 64, 4, 0, None).unwrap();
        let xrc_srq = Srq::new(&pds[0], 64, 4, 0, Some((&xrcd, &cq))).unwrap();
        let (qps, regions, windows) = Default::default();
        Rig {
            context,
            pds,
            channel,
            cq,
            xrcd,
            srq,
            xrc_srq,
            qps,
            regions,
            windows,
            posts: AtomicU32::new(0),
        }
    }

    /// Registers memory and returns the index in `regions`.
    pub fn region(&mut self, kind: Kind, len: usize, access: Access, pd: usize) -> usize {
        let pd = &self.pds[pd];
        let (bytes, mr) = match kind {
            Kind::Buffer => {
                let buffer = Buffer::new(pd, len, access).unwrap();
                let mr = buffer.mr().clone();
                (Bytes::Buffer(buffer), mr)
            }
            Kind::Block | Kind::Private | Kind::OnDemand => {
                let file = (kind == Kind::Block).then(|| SharedFile::of_process().unwrap());
                let (pages, shared) = Pages::of_program(len, file).unwrap();
                assert_eq!(shared, kind == Kind::Block && !stays(), "{kind:?}");
                let mapping = Mapping::pages(Arc::new(pages));
                let access =
                    if kind == Kind::OnDemand { access | Access::ON_DEMAND } else { access };
                let mr = pd.reg_mapping(&mapping, 0, len as u64, mapping.addr(), access).unwrap();
                (Bytes::Mapping(mapping), mr)
            }
            Kind::Dm => {
                let dm = Dm::alloc(&self.context, len as u64, 3).unwrap();
                let mr = pd.reg_dm_mr(&dm, 0, len as u64, access | Access::ZERO_BASED).unwrap();
                (Bytes::Dm(dm), mr)
            }
            Kind::Null => (Bytes::None, pd.alloc_null_mr().unwrap()),
        };
        let addr = mr.region().iova;
        self.regions.push(Region { bytes, mr, addr });
        self.regions.len() - 1
    }

    /// Makes a queue pair and returns the queue pair number.
    pub fn qp(&mut self, shape: Shape) -> u32 {
        let cap = QpCap {
            max_send_wr: 256,
            max_recv_wr: 256,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 128,
        };
        let init = QpInit {
            qp_type: shape.ty,
            cap,
            signal_all: false,
            send_cq: Some(self.cq.clone()),
            recv_cq: Some(self.cq.clone()),
            srq: shape.srq.then(|| self.srq.clone()),
            xrcd: (shape.ty == QpType::XrcRecv).then(|| self.xrcd.clone()),
        };
        let qp = Qp::new(&self.context, Some(&self.pds[0]), &init).unwrap();
        let number = qp.number();
        self.qps.push((qp, shape));
        number
    }

    /// Connects the queue pair with index `at` to the queue pair `peer`.
    pub fn connect(&self, at: usize, peer: u32) {
        let (qp, shape) = &self.qps[at];
        let attr = QpAttr {
            access: shape.access,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
            min_rnr_timer: 12,
            timeout: shape.timeout,
            retry_cnt: shape.retry,
            rnr_retry: shape.rnr_retry,
            ..attributes(own_path(&self.context), peer, PathMtu::Mtu1024)
        };
        to_rts(qp, &attr).unwrap();
    }

    pub fn to(&self, at: usize, state: QpState) {
        to_state(&self.qps[at].0, state);
    }

    /// Posts signaled requests in a single chain. Every second chain performs the requests during
    /// the post where possible, as the verbs library does.
    pub fn post(&self, at: usize, requests: &[SendWr<'_>]) {
        let mut chain = self.qps[at].0.send_chain().unwrap();
        let at_once = self.posts.fetch_add(1, Ordering::Relaxed) % 2 == 1;
        let mut rest = requests;
        while at_once
            && let [wr, others @ ..] = rest
            && plain(wr).is_some_and(|request| chain.perform(&request))
        {
            rest = others;
        }
        rest.iter().for_each(|wr| chain.stage(wr).unwrap());
        chain.commit();
    }

    pub fn send(&self, at: usize, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.post(at, &[request(wr_id, SendFlags::SIGNALED, op, sges)]);
    }

    pub fn recv(&self, at: usize, wr_id: u64, sges: &[Sge]) {
        let wr = RecvWr { wr_id, sges };
        match &self.qps[at] {
            (_, Shape { srq: true, .. }) => self.srq.post_recv(&wr).unwrap(),
            (_, Shape { ty: QpType::XrcRecv, .. }) => self.xrc_srq.post_recv(&wr).unwrap(),
            (qp, _) => qp.post_recv(&wr).unwrap(),
        }
    }

    /// Waits for the next `n` completions.
    pub fn wait(&self, n: usize) -> Vec<Completion> {
        wait(&self.cq, n)
    }

    /// Allocates a memory window, binds the window to part of a region and returns the key of the
    /// window.
    pub fn bind(&mut self, at: usize, ty: MwType, region: usize, offset: u64, len: u64) -> u32 {
        let mw = self.pds[0].alloc_mw(ty).unwrap();
        let r = &self.regions[region];
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let bind = mw.bind_request(r.key(), r.addr + offset, len, access);
        mw.set_key(bind.new_key);
        self.send(at, 99, SendOp::BindMw(bind), &[]);
        let done = self.wait(1).remove(0);
        assert_eq!(done.wr_id, 99, "{done:?}");
        self.windows.push(mw);
        bind.new_key
    }

    /// Counts per path: requests performed directly, packets sent and received through rings,
    /// packets sent over the network.
    pub fn ways(&self) -> [u64; 4] {
        let stats = self.context.node().stats();
        let one_sided = self.qps.iter().map(|(qp, _)| qp.counters().one_sided).sum();
        [one_sided, stats.ring_sent, stats.ring_received, stats.packets_sent]
    }

    /// Number of packets and requests with an injected fault.
    pub fn harmed(&self) -> u64 {
        self.context.node().stats().packets_harmed
    }
}

/// Whether the device is told not to share memory of the program.
fn stays() -> bool {
    std::env::var("ADVERB_ADOPT").is_ok_and(|share| share == "off")
}

pub fn remote(va: u64, rkey: u32) -> Remote {
    Remote { va, rkey }
}

/// Converts a request to a `PlainPost`, which may be performed during the post. `None` if the
/// request has no such form.
fn plain<'a>(wr: &SendWr<'a>) -> Option<PlainPost<'a>> {
    let op = match wr.op {
        SendOp::Write(remote) => PlainOp::Write(remote),
        SendOp::Read(remote) => PlainOp::Read(remote),
        _ => return None,
    };
    let data = match wr.data {
        Payload::Sges(&[entry]) => PlainData::Entry(entry),
        Payload::Inline(&[bytes]) => PlainData::Inline(bytes),
        _ => return None,
    };
    Some(PlainPost { wr_id: wr.wr_id, flags: wr.flags, op, data })
}

/// A completion as a single word.
pub fn show(c: &Completion) -> String {
    format!(
        "{:?}/{:?}/{}/{}/{:x}/{}",
        c.status,
        c.opcode,
        c.wr_id,
        c.byte_len,
        c.imm,
        c.flags.bits()
    )
}
