//! One process of this host.
use super::{Gifts, Lanes, MTU};
use crate::qp::Qp;
use adverb_engine::Range;
use adverb_engine::memory::RangeKind;
use adverb_link::Hello;
use adverb_link::shm::{Consumer, PeerTables, Producer};
use adverb_memory::{Cma, CmaError, PeerMemory, Window};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Tries at a lane that another thread holds.
const TRIES: u32 = 200;
/// Pace of looking whether it has fetched what it is to fetch.
const NAP: Duration = Duration::from_micros(50);
/// Shared memory is mapped in pieces of so many bytes.
const CHUNK: u64 = 1 << 30;

/// A process that packets reach without a network.
pub(crate) struct Peer {
    nonce: u64,
    pid: i32,
    mtu: u32,
    own: bool,
    /// What is sent to it.
    tx: Mutex<Producer>,
    /// What it sends, until the node's receiver has taken the ring over.
    rx: Mutex<Option<Consumer>>,
    pub(crate) tables: PeerTables,
    bell: OwnedFd,
    /// The announcement of its sleep that it was last rung for.
    rung: AtomicU32,
    /// Its memory; `None` of this process itself.
    memory: Option<PeerMemory>,
    /// Its memory, mapped in pieces, by address.
    chunks: Mutex<HashMap<u64, Arc<Window>>>,
    /// May memory that is not shared be reached by system calls? `None`: not tried yet.
    cma: Mutex<Option<Option<Cma>>>,
    /// One of them is readable when it has ended: its process, or the program in that.
    ends: Vec<OwnedFd>,
    gone: AtomicBool,
    /// Behind the last record sent to it whose payload is still to be fetched from memory of this process.
    referenced: AtomicU64,
    /// It cannot read private memory of this process.
    pub(crate) no_references: AtomicBool,
    /// Queue pairs of ours that are connected to it.
    pub(crate) qps: Mutex<Vec<Weak<Qp>>>,
}

impl Peer {
    pub(super) fn new(pid: i32, hello: &Hello, ring: Consumer, gifts: Gifts) -> io::Result<Self> {
        if pid <= 0 {
            return Err(io::Error::other("it lives in another PID namespace"));
        }
        let Gifts { ring: tx, bell, tables, shadow, life } = gifts;
        Ok(Peer {
            nonce: hello.nonce,
            pid,
            mtu: MTU.min(hello.mtu).max(256),
            own: false,
            tx: Mutex::new(Producer::open(tx).map_err(io::Error::other)?),
            rx: Mutex::new(Some(ring)),
            tables: PeerTables::open(tables).map_err(io::Error::other)?,
            bell,
            rung: AtomicU32::new(0),
            memory: Some(PeerMemory::new(shadow).map_err(io::Error::other)?),
            chunks: Mutex::default(),
            cma: Mutex::new(None),
            ends: vec![adverb_link::process_end(pid)?, life],
            gone: AtomicBool::new(false),
            referenced: AtomicU64::new(0),
            no_references: AtomicBool::new(false),
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
            rx: Mutex::new(Some(rx)),
            tables: PeerTables::open(lanes.tables.try_clone()?).map_err(io::Error::other)?,
            bell: lanes.bell.as_fd().try_clone_to_owned()?,
            rung: AtomicU32::new(0),
            memory: None,
            chunks: Mutex::default(),
            cma: Mutex::new(Some(None)),
            ends: Vec::new(),
            gone: AtomicBool::new(false),
            referenced: AtomicU64::new(0),
            no_references: AtomicBool::new(false),
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

    /// The ring that it writes to, for the one who receives; once.
    pub(super) fn take_ring(&self) -> Option<Consumer> {
        self.rx.lock().take()
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
        if addr.checked_add(len)? > start + CHUNK {
            return Some((Arc::new(self.memory.as_ref()?.window(addr, len).ok()?), 0));
        }
        let mut chunks = self.chunks.lock();
        if let Some(chunk) = chunks.get(&start) {
            return Some((chunk.clone(), addr - start));
        }
        let chunk = Arc::new(self.memory.as_ref()?.window(start, CHUNK).ok()?);
        chunks.insert(start, chunk.clone());
        Some((chunk, addr - start))
    }

    /// System calls that reach its private memory, if they may; `addr` is some address of that.
    pub(crate) fn cma(&self, addr: u64) -> Option<Cma> {
        let mut known = self.cma.lock();
        known
            .get_or_insert_with(|| {
                let cma = Cma::new(self.pid.unsigned_abs());
                match cma.allowed(addr) {
                    Ok(()) => Some(cma),
                    Err(e) => {
                        self.tell_no_cma(&e);
                        None
                    }
                }
            })
            .to_owned()
    }

    /// Said once: what forbids it for one process does so for most.
    fn tell_no_cma(&self, why: &CmaError) {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let level = if TOLD.swap(true, Ordering::Relaxed) { log::Level::Debug } else { log::Level::Warn };
        log::log!(
            level,
            "private memory of process {} is not reached directly: {why}; data is copied twice instead",
            self.pid
        );
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
        let read = self.cma(addr).is_some_and(|cma| cma.read(&[here], &[(addr, u64::from(len))]).is_ok());
        if read {
            f(bytes);
        }
        read
    }

    /// A queue pair is connected to one of its.
    pub(crate) fn connect(&self, qp: &Qp) {
        if let Some(me) = qp.me() {
            let mut qps = self.qps.lock();
            // Those that are gone make room as the list would grow.
            if qps.len() == qps.capacity() {
                qps.retain(|qp| qp.strong_count() > 0);
            }
            qps.push(Arc::downgrade(&me));
        }
    }

    /// What is sent to it goes into another ring from now on.
    pub(super) fn replace_ring(&self, ring: OwnedFd) -> io::Result<()> {
        let ring = Producer::open(ring).map_err(io::Error::other)?;
        let mut tx = self.tx.lock();
        self.referenced.store(0, Ordering::Relaxed);
        *tx = ring;
        Ok(())
    }

    /// A record was put in whose payload it is to fetch.
    pub(crate) fn refers(&self, lane: &Producer) {
        self.referenced.store(lane.position(), Ordering::Relaxed);
    }

    /// Waits until it has fetched every payload that was in memory of this process at the call; `false` if it does not come to it.
    pub(super) fn wait_fetched(&self, patience: Duration) -> bool {
        let start = Instant::now();
        loop {
            {
                let mut tx = self.tx.lock();
                let last = self.referenced.load(Ordering::Relaxed);
                if last == 0 || tx.is_read_to(last) {
                    return true;
                }
            }
            if self.is_gone() || start.elapsed() >= patience {
                return self.is_gone();
            }
            std::thread::sleep(NAP);
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
            let _ = nix::unistd::write(&self.bell, &1u64.to_ne_bytes());
        }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer").field("pid", &self.pid).field("own", &self.own).finish_non_exhaustive()
    }
}
