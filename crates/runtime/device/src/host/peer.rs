//! A peer process of this host.
use super::filled::Filled;
use super::handshake::{Given, HandshakeFds};
use super::parts::{File, Links, Memory, Referred, TxRing};
use super::{HostConnections, MTU, PRIVATE};
use crate::ranks;
use adverb_engine::Range;
use adverb_engine::memory::RangeKind;
use adverb_local::{Doorbells, HandshakeMessage, PeerFd, Rung};
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

/// Attempts at a ring locked by another thread.
const TRIES: u32 = 200;
/// Shared memory is mapped in pieces of this many bytes.
const CHUNK: u64 = 1 << 30;

/// The largest number of mapped pieces.
const CHUNKS: usize = 64;
/// A record that is not a packet. Its writer cannot fetch payloads from the reader's memory. Its
/// single byte names the kind of access that failed.
pub(crate) const NO_REFERENCES: u32 = 8;

/// A process reached by packets without a network.
///
/// Queue pairs keep the connected peer, dead or alive. The objects shared by a peer live apart from
/// the `Peer`, and [`Peer::let_go`] ends them. A thread may be in the middle of a copy at that
/// moment, so each object has a rule for its users:
///
/// | thing | its users |
/// |---|---|
/// | windows on the peer's memory | counted by `Arc`. A queue pair drops its own under its lock when it is pumped next |
/// | the descriptor of the peer's memory | counted by `Arc` |
/// | the ring to the peer | one at a time, by the lock `tx` |
/// | the peer's tables | not counted: the kernel exchanges the mapping for zeroes, which are empty tables |
/// | doorbells, and the descriptor of the peer's end | counted by `Arc` |
pub(crate) struct Peer {
    /// Names the peer in reports of doorbells and ends.
    id: u64,
    nonce: u64,
    pid: i32,
    mtu: u32,
    own: bool,
    /// The ring to the peer.
    tx: Ranked<Option<Producer>, ranks::TxRing>,
    /// Payloads outside the ring, named by records in the ring, oldest first. Locked after the
    /// ring.
    referred: Ranked<VecDeque<Referred>, ranks::Referred>,
    /// The rings from the peer, until the node's receiver takes them over.
    rx: Ranked<Vec<Consumer>, ranks::PeerRings>,
    pub(crate) tables: PeerTables,
    links: Ranked<Option<Arc<Links>>, ranks::PeerLinks>,
    /// The sleep announcement for which this process rang the peer's doorbell last.
    rung: AtomicU32,
    memory: Ranked<Memory, ranks::PeerMemory>,
    /// Ranges of `memory` without holes, as seen so far.
    filled: Filled,
    /// The system calls that reach the peer's private memory, or the reason for a refusal. `None`
    /// for this process itself.
    cma: Option<Result<Cma, CmaError>>,
    /// The peer broke the doorbell of this process.
    broken: AtomicBool,
    left: AtomicBool,
    /// After [`Peer::let_go`]: readable when the peer's process has ended.
    end: Ranked<Option<Arc<PeerFd>>, ranks::PeerEnd>,
    lied: AtomicBool,
    /// The peer cannot read memory of this process: by system calls, or by a mapping of shared
    /// memory.
    pub(crate) no_calls: AtomicBool,
    pub(crate) no_windows: AtomicBool,
    /// Numbers of this process's queue pairs with a present or past connection to the peer.
    qps: Ranked<Vec<u32>, ranks::PeerQueuePairs>,
}

impl Peer {
    pub(crate) fn new(
        pid: i32,
        message: &HandshakeMessage,
        given: Given,
        given_fds: HandshakeFds,
        doorbells: &Doorbells,
    ) -> io::Result<Self> {
        if pid <= 0 {
            return Err(io::Error::other("the process is in another PID namespace"));
        }
        let HandshakeFds { ring: tx, doorbell: handle, tables, memory_file } = given_fds;
        let Given { ring, doorbell, .. } = given;
        let tables = PeerTables::open(tables).map_err(io::Error::other)?;
        if tables.identity().nonce != message.nonce {
            return Err(io::Error::other("the tables are of another process"));
        }
        let mut tx = Producer::open(tx).map_err(io::Error::other)?;
        let cma = reaches(pid, tables.thread());
        if cma.is_err() {
            // The first record in the ring, so the peer learns of the failure before any payload is
            // lost.
            let _ = tx.push(NO_REFERENCES, 1, |body| {
                body[0] = PRIVATE;
                true
            });
        }
        let file = Arc::new(PeerMemory::new(File(memory_file)).map_err(io::Error::other)?);
        let end = Some(Arc::new(doorbells.keep(adverb_os::process_end(pid)?)?));
        Ok(Peer {
            id: new_id(),
            nonce: message.nonce,
            pid,
            mtu: MTU.min(message.mtu).max(256),
            own: false,
            tx: Ranked::new(Some(tx)),
            referred: Ranked::default(),
            rx: Ranked::new(vec![ring]),
            tables,
            links: Ranked::new(Some(Arc::new(Links { doorbell, handle, end }))),
            rung: AtomicU32::new(0),
            memory: Ranked::new(Memory { file: Some(file), chunks: HashMap::new() }),
            filled: Filled::default(),
            cma: Some(cma),
            broken: AtomicBool::new(false),
            left: AtomicBool::new(false),
            end: Ranked::default(),
            lied: AtomicBool::new(false),
            no_calls: AtomicBool::new(false),
            no_windows: AtomicBool::new(false),
            qps: Ranked::default(),
        })
    }

    /// This process itself.
    pub(crate) fn own(host: &HostConnections) -> io::Result<Self> {
        let (rx, fd) = Consumer::create().map_err(io::Error::other)?;
        let doorbell = host.doorbells.make()?;
        let handle = doorbell.to_give().ok_or(io::ErrorKind::NotConnected)?.try_clone_to_owned()?;
        let links = Links { doorbell, handle: host.doorbells.handle(handle)?, end: None };
        let tables =
            host.tables.borrow().ok_or(io::ErrorKind::NotConnected)?.try_clone_to_owned()?;
        Ok(Peer {
            id: new_id(),
            nonce: host.nonce,
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
            left: AtomicBool::new(false),
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
    /// Is the peer this process itself?
    pub(crate) fn is_own(&self) -> bool {
        self.own
    }
    /// Bytes of payload in a packet.
    pub(crate) fn mtu(&self) -> u32 {
        self.mtu
    }
    /// Doorbells and ends. `None` after [`Peer::let_go`].
    pub(crate) fn links(&self) -> Option<Arc<Links>> {
        self.links.lock().clone()
    }

    /// Has the doorbell and the end of the peer watched.
    pub(crate) fn watch(&self, doorbells: &Doorbells) -> io::Result<()> {
        let Some(links) = self.links() else { return Ok(()) };
        doorbells.watch(&links.doorbell, &links.handle, links.end(), self.id)
    }

    /// Ends all objects shared by the peer, each as soon as no thread uses the object. The peer
    /// sees a broken doorbell. The caller has taken the records written by the peer, has set
    /// `left`, and pumps the connected queue pairs afterwards.
    ///
    /// `true`: the process lives on, and may be in the middle of a copy. Tables and end stay until
    /// [`Peer::bury`]. If the process has ended, the caller calls [`Peer::bury`] at once.
    pub(crate) fn let_go(&self, doorbells: &Doorbells) -> bool {
        let lives = !self.own && !self.lied.load(Ordering::Relaxed) && !self.process_has_ended();
        let links = self.links.lock().take();
        if let Some(links) = &links {
            let end = if lives { None } else { links.end() };
            doorbells.forget(&links.doorbell, &links.handle, end);
            *self.end.lock() = links.end.clone().filter(|_| lives);
        }
        // Takes the locks separately. A thread with the ring's lock may wait for the keys, and a
        // thread with the keys for the memory.
        let memory = std::mem::take(&mut *self.memory.lock());
        let tx = self.tx.lock().take();
        let rx = std::mem::take(&mut *self.rx.lock());
        // Dropped outside of the locks: unmapping much memory takes time.
        drop((links, memory, tx, rx));
        lives
    }

    /// Was the peer let go, and has the process ended since?
    pub(crate) fn is_to_bury(&self) -> bool {
        self.end.lock().is_some() && self.process_has_ended()
    }

    /// Drops the rest of a peer after [`Peer::let_go`].
    pub(crate) fn bury(&self, doorbells: &Doorbells) {
        let end = self.end.lock().take();
        if let Some(end) = end.as_ref().and_then(|end| end.borrow()) {
            doorbells.unwatch(end);
        }
        drop(end);
        self.tables.let_go();
    }

    /// Do both values stand for the same copy of the library in the same process?
    pub(crate) fn is_of_the_tables_of(&self, other: &Peer) -> bool {
        self.pid == other.pid && self.nonce == other.nonce
    }

    /// The peer was caught in a lie, so the peer's hazards prove nothing.
    pub(crate) fn lies(&self) {
        self.lied.store(true, Ordering::Relaxed);
    }

    /// Has the peer rung? Clears the doorbell.
    pub(crate) fn take_doorbell(&self) -> bool {
        let Some(links) = self.links() else { return false };
        let rung = links.doorbell.take();
        if rung == Rung::Broken {
            self.broken.store(true, Ordering::Relaxed);
        }
        rung == Rung::Yes
    }

    /// Takes the rings from the peer, for the receiver. Returns each ring once.
    pub(crate) fn take_rings(&self) -> Vec<Consumer> {
        std::mem::take(&mut *self.rx.lock())
    }

    /// Adds a ring from the peer.
    pub(crate) fn give_ring(&self, ring: Consumer) {
        let mut rx = self.rx.lock();
        if !self.was_left() {
            rx.push(ring);
        }
    }

    /// Has this process left the peer, because the peer has ended or cannot be trusted?
    #[inline]
    pub(crate) fn was_left(&self) -> bool {
        self.left.load(Ordering::Relaxed)
    }

    /// Has the peer ended or left?
    pub(crate) fn has_ended(&self) -> bool {
        // A polling program takes no doorbells, so a broken doorbell is looked for here, too.
        let end_of = |fd| PollFd::new(fd, PollFlags::empty());
        let Some(links) = self.links() else { return true };
        let Some(handle) = links.handle.as_end() else { return true };
        let process = links.end().map(|end| PollFd::new(end, PollFlags::POLLIN));
        let doorbell = end_of(links.doorbell.as_end().unwrap_or(handle));
        let mut fds = [end_of(handle), doorbell, process.unwrap_or_else(|| end_of(handle))];
        self.broken.load(Ordering::Relaxed)
            || poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }

    /// Has the peer's process ended, with all threads? The peer may have left before.
    pub(crate) fn process_has_ended(&self) -> bool {
        let links = self.links();
        let end =
            links.as_ref().and_then(|links| links.end.clone()).or_else(|| self.end.lock().clone());
        let Some(end) = end.as_ref().and_then(|end| end.borrow()) else { return false };
        let mut fds = [PollFd::new(end, PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }

    /// Is nothing more to be expected of the peer?
    pub(crate) fn has_left(&self) -> bool {
        self.was_left() || self.has_ended()
    }

    /// A mapping of the peer's shared memory, and the offset in the mapping for the offset `addr`
    /// of the peer's file.
    pub(crate) fn window(&self, addr: u64, len: u64) -> Option<(Arc<Window>, u64)> {
        let start = addr & !(CHUNK - 1);
        // A range across the end of a piece is mapped as a separate piece. The peer chooses the
        // offsets, up to the largest possible value.
        let piece =
            if addr.checked_add(len)? - start > CHUNK { (addr, len) } else { (start, CHUNK) };
        let mut memory = self.memory.lock();
        let Memory { file, chunks } = &mut *memory;
        if let Some(chunk) = chunks.get(&piece) {
            return Some((chunk.clone(), addr - piece.0));
        }
        let chunk = Arc::new(file.as_ref()?.window(piece.0, piece.1).ok()?);
        if chunks.len() >= CHUNKS {
            // The number of mappings of a process is limited. Pieces in use stay mapped until the
            // last user drops them.
            chunks.clear();
        }
        chunks.insert(piece, chunk.clone());
        Some((chunk, addr - piece.0))
    }

    /// The system calls that reach the peer's private memory, if allowed. A caller has data to
    /// move, so a refusal is logged.
    pub(crate) fn cma(&self) -> Option<Cma> {
        self.cma.as_ref()?.as_ref().inspect_err(|e| copied_twice(self.pid, e)).ok().copied()
    }
    /// May the peer read private memory of this process? A caller has data for the peer, so a
    /// refusal is logged.
    pub(crate) fn may_read_us(&self) -> bool {
        let may = !self.no_calls.load(Ordering::Relaxed);
        if !may {
            copied_twice(self.pid, &"it may not read the memory of this one");
        }
        may
    }

    /// Shows `f` the bytes at `addr` of the peer's memory, if the guard holds. `false`: the bytes
    /// cannot be reached. The bytes may change while `f` reads, so `f` asks the guard once more
    /// after the copy.
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
            // The range has holes. A read through a mapping would fill them, at the expense of this
            // process.
            let file = self.memory.lock().file.clone();
            file.is_some_and(|file| file.read(addr, bytes).is_ok())
        } else {
            let here = Range { addr: bytes.as_mut_ptr() as u64, len, kind: RangeKind::Mapped };
            self.cma().is_some_and(|cma| cma.fetch(guard, here, addr).is_ok())
        };
        // Bytes read after the sender withdrew the memory are not shown.
        if read && guard.holds() {
            f(bytes);
        }
        read
    }

    /// A queue pair of this process is connected to a queue pair of the peer.
    pub(crate) fn connect(&self, qpn: u32) {
        let mut qps = self.qps.lock();
        // Duplicates are removed before the list would grow.
        if qps.len() == qps.capacity() {
            qps.sort_unstable();
            qps.dedup();
        }
        qps.push(qpn);
    }

    /// The numbers of connected queue pairs, each once. Some numbers may name other queue pairs by
    /// now.
    pub(crate) fn take_connected(&self) -> Vec<u32> {
        let mut qps = std::mem::take(&mut *self.qps.lock());
        qps.sort_unstable();
        qps.dedup();
        qps
    }

    /// Replaces the ring to the peer.
    pub(crate) fn replace_ring(&self, ring: OwnedFd) -> io::Result<()> {
        let ring = Producer::open(ring).map_err(io::Error::other)?;
        if let Some(mut tx_ring) = TxRing::new(self.tx.lock()) {
            *tx_ring = ring;
            self.referred.lock().clear();
        }
        Ok(())
    }

    /// Notes the payload of the last record in the ring, which lies outside the ring.
    pub(crate) fn refers(&self, tx_ring: &mut Producer, to: Referred) {
        let mut all = self.referred.lock();
        while all.front().is_some_and(|first| tx_ring.has_read(first.position)) {
            all.pop_front();
        }
        all.push_back(to);
    }

    /// The `wanted` payloads still to be fetched by the peer.
    pub(crate) fn unfetched(&self, wanted: impl Fn(&Referred) -> bool) -> Vec<Referred> {
        let Some(mut tx_ring) = TxRing::new(self.tx.lock()) else { return Vec::new() };
        let all = self.referred.lock();
        all.iter().filter(|to| wanted(to) && !tx_ring.has_read(to.position)).copied().collect()
    }

    /// The ring to the peer. `None` if another thread keeps the lock for more than a moment, or if
    /// the peer was left.
    pub(crate) fn tx_ring(&self) -> Option<TxRing<'_>> {
        for _ in 0..TRIES {
            if let Some(tx) = self.tx.try_lock() {
                return TxRing::new(tx);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Does the peer have unread records of this process?
    pub(crate) fn is_behind(&self) -> bool {
        self.tx
            .try_lock()
            .is_none_or(|tx| TxRing::new(tx).is_some_and(|mut tx_ring| !tx_ring.is_read()))
    }

    /// Ends the use of the peer. `true` for the first call.
    pub(crate) fn leave(&self) -> bool {
        !self.left.swap(true, Ordering::SeqCst)
    }

    /// Wakes a sleeping peer, once for each announcement of a sleep. The caller has written to the
    /// peer's ring.
    pub(crate) fn ring_doorbell(&self) {
        // The record is written before the announcement is read. The sleeper stores the
        // announcement before the check of the ring. The SeqCst fences on both sides keep this
        // order, so no wake-up is lost.
        std::sync::atomic::fence(Ordering::SeqCst);
        let sleeping = self.tables.sleeping();
        if sleeping & 1 == 1
            && self.rung.swap(sleeping, Ordering::Relaxed) != sleeping
            && let Some(links) = self.links()
        {
            links.handle.ring();
        }
    }
}

fn new_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The system calls that reach the private memory of a process, if they are allowed. The calls name
/// the process by the number of its background thread. This thread ends before an `exec` replaces
/// the memory of the process. With the number of the process itself, the calls would then reach the
/// memory of another program.
fn reaches(pid: i32, thread: u32) -> Result<Cma, CmaError> {
    let is_its =
        thread != pid.unsigned_abs() && Path::new(&format!("/proc/{pid}/task/{thread}")).exists();
    if !is_its {
        log::debug!(
            "process {pid} names a thread of another process, so private memory is not reached \
             directly"
        );
        return Err(CmaError::ProcessEnded);
    }
    let cma = Cma::new(thread);
    // Nothing is mapped at address 0, but the kernel checks the permission first.
    match cma.allowed(0) {
        Ok(()) | Err(CmaError::Fault) => Ok(cma),
        Err(e) => Err(e),
    }
}

/// Logged once, when there is data to copy. The obstacle is mostly the same for all processes.
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
        f.debug_struct("Peer")
            .field("pid", &self.pid)
            .field("own", &self.own)
            .finish_non_exhaustive()
    }
}
