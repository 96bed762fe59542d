//! One process of this host.
use super::filled::Filled;
use super::handshake::{Given, HandshakeFds};
use super::parts::{File, Lane, Links, Memory, Referred};
use super::{Lanes, MTU, PRIVATE};
use crate::ranks;
use adverb_engine::Range;
use adverb_engine::memory::RangeKind;
use adverb_local::{Bells, Hello, PeerFd, Rung};
use adverb_memory::{Cma, CmaError, Guard, PeerMemory, Window};
use adverb_shm::{Consumer, PeerTables, Producer};
use adverb_sync::Ranked;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Tries at a lane that another thread holds.
const TRIES: u32 = 200;
/// Shared memory is mapped in pieces of so many bytes.
const CHUNK: u64 = 1 << 30;

/// Pieces that stay mapped.
const CHUNKS: usize = 64;
/// A record that is not a packet: its writer cannot fetch payloads from the reader's memory. Its
/// one byte is how they would have to be reached.
pub(crate) const NO_REFERENCES: u32 = 8;

/// A process that packets reach without a network.
///
/// Queue pairs keep the peer that they are connected to, dead or alive. The things that a peer
/// shares live apart from the `Peer`, and [`Peer::let_go`] ends them. A thread may be in the middle
/// of a copy at that moment, so each thing has a count of its users:
///
/// | thing | its users |
/// |---|---|
/// | windows on the peer's memory | counted by `Arc`. A queue pair drops its own under its lock when it is pumped next |
/// | the descriptor of the peer's memory | counted by `Arc` |
/// | the ring to the peer | one at a time, by the lock `tx` |
/// | the peer's tables | not counted: the kernel exchanges the mapping for zeroes, which are empty tables |
/// | bells, and the descriptor of the peer's end | counted by `Arc` |
pub(crate) struct Peer {
    /// What its bell and its end are told of by.
    id: u64,
    nonce: u64,
    pid: i32,
    mtu: u32,
    own: bool,
    /// What is sent to it.
    tx: Ranked<Option<Producer>, ranks::Lane>,
    /// Payloads elsewhere that records in its ring point at, oldest first. Locked behind the lane.
    referred: Ranked<VecDeque<Referred>, ranks::Referred>,
    /// What it sends, until the node's receiver has taken the rings over.
    rx: Ranked<Vec<Consumer>, ranks::PeerRings>,
    pub(crate) tables: PeerTables,
    links: Ranked<Option<Arc<Links>>, ranks::PeerLinks>,
    /// The announcement of its sleep that it was last rung for.
    rung: AtomicU32,
    memory: Ranked<Memory, ranks::PeerMemory>,
    /// Where that was seen to be without holes.
    filled: Filled,
    /// System calls that reach memory which is not shared; or why they may not. `None` of this
    /// process itself.
    cma: Option<Result<Cma, CmaError>>,
    /// It broke the bell that it rings.
    broken: AtomicBool,
    gone: AtomicBool,
    /// Readable when the process of a peer that was let go has ended.
    end: Ranked<Option<Arc<PeerFd>>, ranks::PeerEnd>,
    lied: AtomicBool,
    /// It cannot read memory of this process: by system calls; or at all.
    pub(crate) no_calls: AtomicBool,
    pub(crate) no_windows: AtomicBool,
    /// Numbers of queue pairs of ours that are, or were, connected to it.
    qps: Ranked<Vec<u32>, ranks::PeerQueuePairs>,
}

impl Peer {
    pub(crate) fn new(
        pid: i32,
        hello: &Hello,
        given: Given,
        given_fds: HandshakeFds,
        bells: &Bells,
    ) -> io::Result<Self> {
        if pid <= 0 {
            return Err(io::Error::other("it lives in another PID namespace"));
        }
        let HandshakeFds { ring: tx, bell: rope, tables, shadow } = given_fds;
        let Given { ring, bell, .. } = given;
        let tables = PeerTables::open(tables).map_err(io::Error::other)?;
        if tables.identity().nonce != hello.nonce {
            return Err(io::Error::other("its tables are another process's"));
        }
        let mut tx = Producer::open(tx).map_err(io::Error::other)?;
        let cma = reaches(pid, tables.thread());
        if cma.is_err() {
            // The first thing it reads, so that nothing is lost by the attempt.
            let _ = tx.push(NO_REFERENCES, 1, |body| {
                body[0] = PRIVATE;
                true
            });
        }
        let file = Arc::new(PeerMemory::new(File(shadow)).map_err(io::Error::other)?);
        let end = Some(Arc::new(bells.keep(adverb_os::process_end(pid)?)?));
        Ok(Peer {
            id: new_id(),
            nonce: hello.nonce,
            pid,
            mtu: MTU.min(hello.mtu).max(256),
            own: false,
            tx: Ranked::new(Some(tx)),
            referred: Ranked::default(),
            rx: Ranked::new(vec![ring]),
            tables,
            links: Ranked::new(Some(Arc::new(Links { bell, rope, end }))),
            rung: AtomicU32::new(0),
            memory: Ranked::new(Memory { file: Some(file), chunks: HashMap::new() }),
            filled: Filled::default(),
            cma: Some(cma),
            broken: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            end: Ranked::default(),
            lied: AtomicBool::new(false),
            no_calls: AtomicBool::new(false),
            no_windows: AtomicBool::new(false),
            qps: Ranked::default(),
        })
    }

    /// This process itself.
    pub(crate) fn own(lanes: &Lanes) -> io::Result<Self> {
        let (rx, fd) = Consumer::create().map_err(io::Error::other)?;
        let bell = lanes.bells.make()?;
        let rope = bell.to_give().ok_or(io::ErrorKind::NotConnected)?.try_clone_to_owned()?;
        let links = Links { bell, rope: lanes.bells.rope(rope)?, end: None };
        let tables = lanes.tables.borrow().ok_or(io::ErrorKind::NotConnected)?.try_clone_to_owned()?;
        Ok(Peer {
            id: new_id(),
            nonce: lanes.nonce,
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            mtu: MTU,
            own: true,
            tx: Ranked::new(Some(Producer::open(fd).map_err(io::Error::other)?)),
            referred: Ranked::default(),
            rx: Ranked::new(vec![rx]),
            tables: PeerTables::open(tables).map_err(io::Error::other)?,
            links: Ranked::new(Some(Arc::new(links))),
            rung: AtomicU32::new(0),
            memory: Ranked::default(),
            filled: Filled::default(),
            cma: None,
            broken: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            end: Ranked::default(),
            lied: AtomicBool::new(false),
            no_calls: AtomicBool::new(false),
            no_windows: AtomicBool::new(false),
            qps: Ranked::default(),
        })
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }
    /// Is it this process itself?
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }
    /// Bytes of payload in a packet.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }
    /// Bells and ends. `None` of a peer that was left.
    pub(crate) fn links(&self) -> Option<Arc<Links>> {
        self.links.lock().clone()
    }

    /// Has its bell and its end watched.
    pub(crate) fn watch(&self, bells: &Bells) -> io::Result<()> {
        let Some(links) = self.links() else { return Ok(()) };
        bells.watch(&links.bell, &links.rope, links.end(), self.id)
    }

    /// Ends all that the peer shares, each thing as soon as no thread uses it. The peer sees that
    /// its bell breaks. The caller has taken what the peer wrote to its ring, has set `gone`, and
    /// has the connected queue pairs pumped afterwards.
    ///
    /// `true`: the process lives on, and may be in the middle of a copy. Its tables and its end
    /// stay until [`Peer::bury`], which the caller calls at once of a process that does not live
    /// on.
    pub(crate) fn let_go(&self, bells: &Bells) -> bool {
        let lives = !self.own && !self.lied.load(Ordering::Relaxed) && !self.process_has_ended();
        let links = self.links.lock().take();
        if let Some(links) = &links {
            let end = if lives { None } else { links.end() };
            bells.forget(&links.bell, &links.rope, end);
            *self.end.lock() = links.end.clone().filter(|_| lives);
        }
        // One lock after the other: a thread with the ring may wait for the keys, and a thread with
        // the keys for the memory.
        let memory = std::mem::take(&mut *self.memory.lock());
        let tx = self.tx.lock().take();
        let rx = std::mem::take(&mut *self.rx.lock());
        // Outside of the locks: it takes time to unmap much.
        drop((links, memory, tx, rx));
        lives
    }

    /// Was it let go, and has its process ended since?
    pub(crate) fn is_to_bury(&self) -> bool {
        self.end.lock().is_some() && self.process_has_ended()
    }

    /// Nothing of a peer that was let go is kept any more.
    pub(crate) fn bury(&self, bells: &Bells) {
        let end = self.end.lock().take();
        if let Some(end) = end.as_ref().and_then(|end| end.borrow()) {
            bells.unwatch(end);
        }
        drop(end);
        self.tables.let_go();
    }

    /// Do both values stand for one copy of the library in one process?
    pub(crate) fn is_of_the_tables_of(&self, other: &Peer) -> bool {
        self.pid == other.pid && self.nonce == other.nonce
    }

    /// Its marks prove nothing: it was caught in a lie.
    pub(crate) fn lies(&self) {
        self.lied.store(true, Ordering::Relaxed);
    }

    /// Has it rung? Takes that away.
    pub(crate) fn take_bell(&self) -> bool {
        let Some(links) = self.links() else { return false };
        let rung = links.bell.take();
        if rung == Rung::Broken {
            self.broken.store(true, Ordering::Relaxed);
        }
        rung == Rung::Yes
    }

    /// The rings that it writes to, for the one who receives; each once.
    pub(crate) fn take_rings(&self) -> Vec<Consumer> {
        std::mem::take(&mut *self.rx.lock())
    }

    /// One more that it writes to.
    pub(crate) fn give_ring(&self, ring: Consumer) {
        let mut rx = self.rx.lock();
        if !self.is_gone() {
            rx.push(ring);
        }
    }

    /// Known to have ended, or broke its ring.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Has it ended, or has it left?
    pub(crate) fn has_ended(&self) -> bool {
        // A program that polls by itself takes no bells, so that a broken one is looked for here,
        // too.
        let end_of = |fd| PollFd::new(fd, PollFlags::empty());
        let Some(links) = self.links() else { return true };
        let Some(rope) = links.rope.as_end() else { return true };
        let process = links.end().map(|end| PollFd::new(end, PollFlags::POLLIN));
        let bell = end_of(links.bell.as_end().unwrap_or(rope));
        let mut fds = [end_of(rope), bell, process.unwrap_or_else(|| end_of(rope))];
        self.broken.load(Ordering::Relaxed) || poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }

    /// Has its process ended, with all its threads? It may have left before that.
    pub(crate) fn process_has_ended(&self) -> bool {
        let links = self.links();
        let end = links.as_ref().and_then(|links| links.end.clone()).or_else(|| self.end.lock().clone());
        let Some(end) = end.as_ref().and_then(|end| end.borrow()) else { return false };
        let mut fds = [PollFd::new(end, PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }

    /// Is nothing of it to be expected any more?
    pub(crate) fn has_left(&self) -> bool {
        self.is_gone() || self.has_ended()
    }

    /// Memory of its that is shared, mapped here, and where the offset `addr` of its file is in the
    /// mapping.
    pub(crate) fn window(&self, addr: u64, len: u64) -> Option<(Arc<Window>, u64)> {
        let start = addr & !(CHUNK - 1);
        // What goes over the end of a piece is a piece of its own. Offsets are the peer's to say,
        // up to the last there is.
        let piece = if addr.checked_add(len)? - start > CHUNK { (addr, len) } else { (start, CHUNK) };
        let mut memory = self.memory.lock();
        let Memory { file, chunks } = &mut *memory;
        if let Some(chunk) = chunks.get(&piece) {
            return Some((chunk.clone(), addr - piece.0));
        }
        let chunk = Arc::new(file.as_ref()?.window(piece.0, piece.1).ok()?);
        if chunks.len() >= CHUNKS {
            // Those in use stay with who uses them. A process has mappings without end no more than
            // memory.
            chunks.clear();
        }
        chunks.insert(piece, chunk.clone());
        Some((chunk, addr - piece.0))
    }

    /// System calls that reach its private memory, if they may. Who asks has data to move.
    pub(crate) fn cma(&self) -> Option<Cma> {
        self.cma.as_ref()?.as_ref().inspect_err(|e| copied_twice(self.pid, e)).ok().copied()
    }
    /// May it read private memory of this process? Who asks has data for it.
    pub(crate) fn may_read_us(&self) -> bool {
        let may = !self.no_calls.load(Ordering::Relaxed);
        if !may {
            copied_twice(self.pid, &"it may not read the memory of this one");
        }
        may
    }

    /// Shows `f` bytes of its memory, if the guard holds; `false` if they cannot be reached. They
    /// may change while `f` looks: `f` asks the guard once more, behind its copy.
    pub(crate) fn fetch(
        &self,
        guard: &Guard<'_>,
        addr: u64,
        len: u32,
        shared: bool,
        scratch: &mut Vec<u8>,
        f: impl FnOnce(&[u8]),
    ) -> bool {
        if len > MTU {
            return false;
        }
        if shared && len > 0 {
            let Some((window, off)) = self.window(addr, u64::from(len)) else { return false };
            if self.filled.covers(&window, off, addr, len) {
                return window.with_bytes(off, len as usize, f).is_ok();
            }
        }
        scratch.resize(MTU as usize, 0);
        let bytes = &mut scratch[..len as usize];
        let read = if shared {
            // What it points at has holes. A look at one by a mapping would fill it, at the expense
            // of this process.
            let file = self.memory.lock().file.clone();
            file.is_some_and(|file| file.read(addr, bytes).is_ok())
        } else {
            let here = Range { addr: bytes.as_mut_ptr() as u64, len, kind: RangeKind::Mapped };
            self.cma().is_some_and(|cma| cma.fetch(guard, here, addr).is_ok())
        };
        // What was read behind the sender's back is not shown.
        if read && guard.holds() {
            f(bytes);
        }
        read
    }

    /// A queue pair is connected to one of its.
    pub(crate) fn connect(&self, qpn: u32) {
        let mut qps = self.qps.lock();
        // Those that are connected once more make room as the list would grow.
        if qps.len() == qps.capacity() {
            qps.sort_unstable();
            qps.dedup();
        }
        qps.push(qpn);
    }

    /// The numbers of those that were, each once; some may name other queue pairs by now.
    pub(crate) fn take_connected(&self) -> Vec<u32> {
        let mut qps = std::mem::take(&mut *self.qps.lock());
        qps.sort_unstable();
        qps.dedup();
        qps
    }

    /// What is sent to it goes into another ring from now on.
    pub(crate) fn replace_ring(&self, ring: OwnedFd) -> io::Result<()> {
        let ring = Producer::open(ring).map_err(io::Error::other)?;
        if let Some(mut lane) = Lane::new(self.tx.lock()) {
            *lane = ring;
            self.referred.lock().clear();
        }
        Ok(())
    }

    /// The last record written to the lane points at a payload elsewhere.
    pub(crate) fn refers(&self, lane: &mut Producer, to: Referred) {
        let mut all = self.referred.lock();
        while all.front().is_some_and(|first| lane.has_read(first.position)) {
            all.pop_front();
        }
        all.push_back(to);
    }

    /// The payloads that it has still to fetch, of those that are `wanted`.
    pub(crate) fn unfetched(&self, wanted: impl Fn(&Referred) -> bool) -> Vec<Referred> {
        let Some(mut lane) = Lane::new(self.tx.lock()) else { return Vec::new() };
        let all = self.referred.lock();
        all.iter().filter(|to| wanted(to) && !lane.has_read(to.position)).copied().collect()
    }

    /// The way to it, unless another thread keeps it for more than a moment, or the peer was left.
    pub(crate) fn lane(&self) -> Option<Lane<'_>> {
        for _ in 0..TRIES {
            if let Some(tx) = self.tx.try_lock() {
                return Lane::new(tx);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Has it something of ours to read?
    pub(crate) fn is_behind(&self) -> bool {
        self.tx.try_lock().is_none_or(|tx| Lane::new(tx).is_some_and(|mut lane| !lane.is_read()))
    }

    /// It is not used any more; `true` the first time.
    pub(crate) fn leave(&self) -> bool {
        !self.gone.swap(true, Ordering::SeqCst)
    }

    /// Wakes it if it sleeps, once for each time it went to sleep. The caller has written to its
    /// ring.
    pub(crate) fn ring_bell(&self) {
        // What was written comes before the look at the announcement; the sleeper announces first
        // and looks at the ring then.
        std::sync::atomic::fence(Ordering::SeqCst);
        let sleeping = self.tables.sleeping();
        if sleeping & 1 == 1
            && self.rung.swap(sleeping, Ordering::Relaxed) != sleeping
            && let Some(links) = self.links()
        {
            links.rope.ring();
        }
    }
}

fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// What reaches the private memory of a process, if it may: by the number of its background thread.
/// That ends before an `exec` gives the process another memory, in which the same addresses are
/// another program's; the number of the process would lead there.
fn reaches(pid: i32, thread: u32) -> Result<Cma, CmaError> {
    let is_its = thread != pid.unsigned_abs() && Path::new(&format!("/proc/{pid}/task/{thread}")).exists();
    if !is_its {
        log::debug!("process {pid} names no thread of its own: its private memory is not reached directly");
        return Err(CmaError::Gone);
    }
    let cma = Cma::new(thread);
    // Nothing is mapped there, but whether it may is asked first.
    match cma.allowed(0) {
        Ok(()) | Err(CmaError::Fault) => Ok(cma),
        Err(e) => Err(e),
    }
}

/// Said once, where data is: what forbids it for one process does so for most.
fn copied_twice(pid: i32, why: &dyn std::fmt::Display) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if !TOLD.load(Ordering::Relaxed) && !TOLD.swap(true, Ordering::Relaxed) {
        log::warn!(
            "private memory is not reached directly between this process and process {pid}: {why}; data is copied twice instead"
        );
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("pid", &self.pid).field("own", &self.own).finish_non_exhaustive()
    }
}
