//! One process of this host.
use super::{Gifts, Lanes, MTU, PRIVATE};
use crate::qp::Qp;
use adverb_engine::Range;
use adverb_engine::memory::RangeKind;
use adverb_link::Hello;
use adverb_link::shm::{Consumer, PeerTables, Producer};
use adverb_memory::{Cma, CmaError, PeerMemory, Window};
use adverb_sync::{Mutex, MutexGuard};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Tries at a lane that another thread holds.
const TRIES: u32 = 200;
/// Shared memory is mapped in pieces of so many bytes.
const CHUNK: u64 = 1 << 30;

/// Pieces that stay mapped.
const CHUNKS: usize = 64;
/// Pace of looking whether it has fetched payloads.
const NAP: Duration = Duration::from_micros(20);
/// A record that is not a packet: its writer cannot fetch payloads from the reader's memory. Its one byte is how they would have to
/// be reached.
pub(crate) const NO_REFERENCES: u32 = 8;

/// A process that packets reach without a network.
pub(crate) struct Peer {
    nonce: u64,
    pid: i32,
    mtu: u32,
    own: bool,
    /// What is sent to it.
    tx: Mutex<Producer>,
    /// The place in its ring behind the last record that points at a payload elsewhere; written by who has the lane.
    referred: AtomicU64,
    /// What it sends, until the node's receiver has taken the rings over.
    rx: Mutex<Vec<Consumer>>,
    pub(crate) tables: PeerTables,
    bell: OwnedFd,
    /// The announcement of its sleep that it was last rung for.
    rung: AtomicU32,
    /// Its memory; `None` of this process itself.
    memory: Option<PeerMemory>,
    /// Its memory, mapped in pieces, by address.
    chunks: Mutex<HashMap<(u64, u64), Arc<Window>>>,
    /// System calls that reach memory which is not shared, if they may.
    cma: Option<Cma>,
    /// One of them is readable when it has ended: its process, or the program in that.
    ends: Vec<OwnedFd>,
    gone: AtomicBool,
    /// It cannot read memory of this process: by system calls; or at all.
    pub(crate) no_calls: AtomicBool,
    pub(crate) no_windows: AtomicBool,
    /// It was waited for in vain.
    stalls: AtomicBool,
    /// Queue pairs of ours that are connected to it.
    pub(crate) qps: Mutex<Vec<Weak<Qp>>>,
}

impl Peer {
    pub(super) fn new(pid: i32, hello: &Hello, ring: Consumer, gifts: Gifts) -> io::Result<Self> {
        if pid <= 0 {
            return Err(io::Error::other("it lives in another PID namespace"));
        }
        let Gifts { ring: tx, bell, tables, shadow, life } = gifts;
        let tables = PeerTables::open(tables).map_err(io::Error::other)?;
        if tables.identity().nonce != hello.nonce {
            return Err(io::Error::other("its tables are another process's"));
        }
        let mut tx = Producer::open(tx).map_err(io::Error::other)?;
        let cma = reaches(pid);
        if cma.is_none() {
            // The first thing it reads, so that nothing is lost by the attempt.
            let _ = tx.push(NO_REFERENCES, 1, |body| {
                body[0] = PRIVATE;
                true
            });
        }
        Ok(Peer {
            nonce: hello.nonce,
            pid,
            mtu: MTU.min(hello.mtu).max(256),
            own: false,
            tx: Mutex::new(tx),
            referred: AtomicU64::new(0),
            rx: Mutex::new(vec![ring]),
            tables,
            bell,
            rung: AtomicU32::new(0),
            memory: Some(PeerMemory::new(shadow).map_err(io::Error::other)?),
            chunks: Mutex::default(),
            cma,
            ends: vec![adverb_link::process_end(pid)?, life],
            gone: AtomicBool::new(false),
            no_calls: AtomicBool::new(false),
            no_windows: AtomicBool::new(false),
            stalls: AtomicBool::new(false),
            qps: Mutex::default(),
        })
    }

    /// This process itself.
    pub(super) fn own(lanes: &Lanes) -> io::Result<Self> {
        let (rx, fd) = Consumer::create().map_err(io::Error::other)?;
        Ok(Peer {
            nonce: lanes.nonce,
            pid: i32::try_from(std::process::id()).unwrap_or(0),
            mtu: MTU,
            own: true,
            tx: Mutex::new(Producer::open(fd).map_err(io::Error::other)?),
            referred: AtomicU64::new(0),
            rx: Mutex::new(vec![rx]),
            tables: PeerTables::open(lanes.tables.try_clone()?).map_err(io::Error::other)?,
            bell: lanes.bell.as_fd().try_clone_to_owned()?,
            rung: AtomicU32::new(0),
            memory: None,
            chunks: Mutex::default(),
            cma: None,
            ends: Vec::new(),
            gone: AtomicBool::new(false),
            no_calls: AtomicBool::new(false),
            no_windows: AtomicBool::new(false),
            stalls: AtomicBool::new(false),
            qps: Mutex::default(),
        })
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
    /// One of them is readable when it has ended.
    pub(crate) fn ends(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ends.iter().map(AsFd::as_fd)
    }

    /// The rings that it writes to, for the one who receives; each once.
    pub(super) fn take_rings(&self) -> Vec<Consumer> {
        std::mem::take(&mut *self.rx.lock())
    }

    /// One more that it writes to.
    pub(super) fn give_ring(&self, ring: Consumer) {
        self.rx.lock().push(ring);
    }

    /// Known to have ended, or broke its ring.
    #[inline]
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    /// Has it ended?
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds: Vec<_> = self.ends().map(|end| PollFd::new(end, PollFlags::POLLIN)).collect();
        poll(&mut fds, PollTimeout::ZERO).is_ok_and(|n| n > 0)
    }

    /// Memory of its that is shared, mapped here, and where `addr` is in the mapping.
    pub(crate) fn window(&self, addr: u64, len: u64) -> Option<(Arc<Window>, u64)> {
        let start = addr & !(CHUNK - 1);
        // What goes over the end of a piece is a piece of its own.
        let piece = if addr.checked_add(len)? > start + CHUNK { (addr, len) } else { (start, CHUNK) };
        let mut chunks = self.chunks.lock();
        if let Some(chunk) = chunks.get(&piece) {
            return Some((chunk.clone(), addr - piece.0));
        }
        let chunk = Arc::new(self.memory.as_ref()?.window(piece.0, piece.1).ok()?);
        if chunks.len() >= CHUNKS {
            // Those in use stay with who uses them. A process has mappings without end no more than memory.
            chunks.clear();
        }
        chunks.insert(piece, chunk.clone());
        Some((chunk, addr - piece.0))
    }

    /// System calls that reach its private memory, if they may.
    pub(crate) fn cma(&self) -> Option<Cma> {
        self.cma
    }

    /// Shows `f` bytes of its memory; `false` if they cannot be reached. They may change while `f` looks.
    pub(crate) fn fetch(
        &self,
        addr: u64,
        len: u32,
        shared: bool,
        scratch: &mut Vec<u8>,
        f: impl FnOnce(&[u8]),
    ) -> bool {
        if len > MTU {
            return false;
        }
        if shared {
            return self
                .window(addr, u64::from(len))
                .is_some_and(|(window, off)| window.with_bytes(off, len as usize, f).is_ok());
        }
        scratch.resize(MTU as usize, 0);
        let bytes = &mut scratch[..len as usize];
        let here = Range { addr: bytes.as_mut_ptr() as u64, len, kind: RangeKind::Mapped };
        let read = self.cma().is_some_and(|cma| cma.read(&[here], &[(addr, u64::from(len))]).is_ok());
        if read {
            f(bytes);
        }
        read
    }

    /// A queue pair is connected to one of its.
    pub(crate) fn connect(&self, qp: &Qp) {
        if let Some(me) = qp.me() {
            let mut qps = self.qps.lock();
            // Those that are gone, or connected once more, make room as the list would grow.
            if qps.len() == qps.capacity() {
                qps.retain(|qp| qp.strong_count() > 0);
                qps.sort_unstable_by_key(Weak::as_ptr);
                qps.dedup_by(|a, b| Weak::ptr_eq(a, b));
            }
            qps.push(Arc::downgrade(&me));
        }
    }

    /// What is sent to it goes into another ring from now on.
    pub(super) fn replace_ring(&self, ring: OwnedFd) -> io::Result<()> {
        let ring = Producer::open(ring).map_err(io::Error::other)?;
        let mut tx = self.tx.lock();
        *tx = ring;
        self.referred.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// The last record written to the lane points at a payload elsewhere.
    pub(crate) fn refers(&self, lane: &Producer) {
        self.referred.store(lane.position(), Ordering::Relaxed);
    }

    /// Waits until it has fetched every payload that records written so far point at.
    pub(super) fn wait_fetched(&self, patience: Duration) -> bool {
        let fetched = || {
            let mut tx = self.tx.lock();
            let referred = self.referred.load(Ordering::Relaxed);
            referred == 0 || tx.has_read(referred)
        };
        if fetched() {
            return true;
        }
        // It may sleep over the rest of a batch whose bell is still to be rung.
        self.ring_bell();
        let until = Instant::now() + patience;
        while !fetched() {
            if self.is_gone() || self.has_ended() || Instant::now() >= until {
                return false;
            }
            std::thread::sleep(NAP);
        }
        true
    }

    /// Waits until it has fetched the payloads that records written before only point at.
    pub(crate) fn let_fetch(&self, patience: Duration) {
        self.patiently(patience, |patience| self.wait_fetched(patience));
    }

    /// Waits for it by `wait`. One that stands still, or marks itself as at work for ever, is waited for in vain once and not each time.
    pub(super) fn patiently(&self, patience: Duration, wait: impl FnOnce(Duration) -> bool) {
        let patience = if self.stalls.load(Ordering::Relaxed) { Duration::ZERO } else { patience };
        let quiet = wait(patience);
        let stalled = self.stalls.swap(!quiet, Ordering::Relaxed);
        if !quiet && !stalled && !self.is_gone() {
            log::warn!(
                "process {} has been at work in memory of this one for {patience:?}; it is not waited for any longer",
                self.pid
            );
        }
    }

    /// The way to it, unless another thread keeps it for more than a moment.
    pub(crate) fn lane(&self) -> Option<MutexGuard<'_, Producer>> {
        for _ in 0..TRIES {
            if let Some(lane) = self.tx.try_lock() {
                return Some(lane);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Has it something of ours to read?
    pub(crate) fn is_behind(&self) -> bool {
        !self.tx.try_lock().is_some_and(|mut tx| tx.is_read())
    }

    /// It is not used any more; `true` the first time.
    pub(crate) fn leave(&self) -> bool {
        !self.gone.swap(true, Ordering::SeqCst)
    }

    /// Wakes it if it sleeps, once for each time it went to sleep. The caller has written to its ring.
    pub(crate) fn ring_bell(&self) {
        // What was written comes before the look at the announcement; the sleeper announces first and looks at the ring then.
        std::sync::atomic::fence(Ordering::SeqCst);
        let sleeping = self.tables.sleeping();
        if sleeping & 1 == 1 && self.rung.swap(sleeping, Ordering::Relaxed) != sleeping {
            adverb_link::add_token(self.bell.as_fd());
        }
    }
}

/// What reaches the private memory of a process, if it may.
fn reaches(pid: i32) -> Option<Cma> {
    let cma = Cma::new(pid.unsigned_abs());
    // Nothing is mapped there, but whether it may is asked first.
    match cma.allowed(0) {
        Ok(()) | Err(CmaError::Fault) => Some(cma),
        Err(e) => {
            // Said once: what forbids it for one process does so for most.
            static TOLD: AtomicBool = AtomicBool::new(false);
            let level = if TOLD.swap(true, Ordering::Relaxed) { log::Level::Debug } else { log::Level::Warn };
            log::log!(
                level,
                "private memory of process {pid} is not reached directly: {e}; data is copied twice instead"
            );
            None
        }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("pid", &self.pid).field("own", &self.own).finish_non_exhaustive()
    }
}
