//! A peer process of this host.
use self::links::Links;
use self::memory::copied_twice;
use super::handshake::{Given, HandshakeFds};
use super::{HostConnections, MTU, PRIVATE};
use crate::ranks;
use adverb_local::{Doorbells, HandshakeMessage};
use adverb_shm::{Consumer, PeerTables, Producer};
use adverb_sync::Ranked;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod links;
mod memory;
mod outgoing;

pub(crate) use links::PeerLinks;
pub(super) use links::any_event;
pub(crate) use memory::ReachedMemory;
pub(crate) use outgoing::{OutgoingRing, Referred, TxRing};

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
/// | the ring to the peer | one at a time, by its lock |
/// | the peer's tables | not counted: the kernel exchanges the mapping for zeroes, which are empty tables |
/// | doorbells, and the descriptor of the peer's end | counted by `Arc` |
pub(crate) struct Peer {
    /// Names the peer in reports of doorbells and ends.
    pub(crate) id: u64,
    pub(crate) nonce: u64,
    pub(crate) pid: i32,
    /// Bytes of payload in a packet.
    pub(crate) mtu: u32,
    /// Is the peer this process itself?
    pub(crate) is_own: bool,
    /// The ring to the peer.
    pub(crate) outgoing: OutgoingRing,
    /// The rings from the peer, until the node's receiver takes them over.
    rx: Ranked<Vec<Consumer>, ranks::PeerRings>,
    pub(crate) tables: PeerTables,
    pub(crate) links: PeerLinks,
    pub(crate) memory: ReachedMemory,
    left: AtomicBool,
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
        let memory = ReachedMemory::of(pid, tables.thread(), memory_file)?;
        if !memory.has_calls() {
            // The first record in the ring, so the peer learns of the failure before any payload is
            // lost.
            let _ = tx.push(NO_REFERENCES, 1, |body| {
                body[0] = PRIVATE;
                true
            });
        }
        let end = Some(Arc::new(doorbells.keep(adverb_os::process_end(pid)?)?));
        let links = Links { doorbell, handle, end };
        let mtu = MTU.min(message.mtu).max(256);
        Ok(Peer { mtu, ..Peer::of(pid, tx, ring, tables, links, memory) })
    }

    /// This process itself.
    pub(crate) fn own(host: &HostConnections) -> io::Result<Self> {
        let (rx, fd) = Consumer::create().map_err(io::Error::other)?;
        let doorbell = host.doorbells.make()?;
        let handle = doorbell.to_give().ok_or(io::ErrorKind::NotConnected)?.try_clone_to_owned()?;
        let links = Links { doorbell, handle: host.doorbells.handle(handle)?, end: None };
        let tables =
            host.tables.borrow().ok_or(io::ErrorKind::NotConnected)?.try_clone_to_owned()?;
        let tables = PeerTables::open(tables).map_err(io::Error::other)?;
        let tx = Producer::open(fd).map_err(io::Error::other)?;
        let pid = i32::try_from(std::process::id()).unwrap_or(0);
        let memory = ReachedMemory::own(pid);
        Ok(Peer { is_own: true, ..Peer::of(pid, tx, rx, tables, links, memory) })
    }

    fn of(
        pid: i32,
        tx: Producer,
        rx: Consumer,
        tables: PeerTables,
        links: Links,
        memory: ReachedMemory,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Peer {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            nonce: tables.identity().nonce,
            pid,
            mtu: MTU,
            is_own: false,
            outgoing: OutgoingRing::new(tx),
            rx: Ranked::new(vec![rx]),
            tables,
            links: PeerLinks::new(links),
            memory,
            left: AtomicBool::new(false),
            lied: AtomicBool::new(false),
            no_calls: AtomicBool::new(false),
            no_windows: AtomicBool::new(false),
            qps: Ranked::default(),
        }
    }

    /// Has the doorbell and the end of the peer watched.
    pub(crate) fn watch(&self, doorbells: &Doorbells) -> io::Result<()> {
        self.links.watch(doorbells, self.id)
    }

    /// Ends all objects shared by the peer, each as soon as no thread uses the object. The peer
    /// sees a broken doorbell. The caller has taken the records written by the peer, has set
    /// `left`, and pumps the connected queue pairs afterwards.
    ///
    /// `true`: the process lives on, and may be in the middle of a copy. Tables and end stay until
    /// [`Peer::bury`]. If the process has ended, the caller calls [`Peer::bury`] at once.
    pub(crate) fn let_go(&self, doorbells: &Doorbells) -> bool {
        let lives =
            !self.is_own && !self.lied.load(Ordering::Relaxed) && !self.links.process_has_ended();
        self.links.let_go(doorbells, lives);
        // Takes the locks separately. A thread with the ring's lock may wait for the keys, and a
        // thread with the keys for the memory.
        self.memory.let_go();
        let (tx, rx) = (self.outgoing.close(), self.take_rings());
        // Dropped outside of the locks: unmapping much memory takes time.
        drop((tx, rx));
        lives
    }

    /// Drops the rest of a peer after [`Peer::let_go`].
    pub(crate) fn bury(&self, doorbells: &Doorbells) {
        self.links.bury(doorbells);
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

    /// Is nothing more to be expected of the peer?
    pub(crate) fn has_left(&self) -> bool {
        self.was_left() || self.links.has_ended()
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
        if sleeping & 1 == 1 {
            self.links.ring(sleeping);
        }
    }
}

impl std::fmt::Debug for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peer")
            .field("pid", &self.pid)
            .field("own", &self.is_own)
            .finish_non_exhaustive()
    }
}
