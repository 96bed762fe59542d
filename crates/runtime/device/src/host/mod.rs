//! The other processes of this user on this host, and this process itself, as peers that need no
//! network.
//!
//! Two processes perform one handshake ([`adverb_local::HandshakeMessage`]). Each gives the other a
//! ring to write to, the published tables, the shared file, and a doorbell ([`handshake`]).
//! Afterwards packets between their queue pairs go through the rings, carried by [`crate::node`].
//! The initiator performs one-sided requests itself in the peer's memory ([`one_sided`]). A process
//! without an answer, or without permission to share memory, is reached over the network like any
//! other host.
use crate::ranks;
use adverb_local::{Doorbells, PeerFd, Slot};
use adverb_memory::SharedFile;
use adverb_os::SocketErrors;
use adverb_shm::{Consumer, Published};
use adverb_sync::{Ranked, RankedRw};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod filled;
mod handshake;
mod one_sided;
mod peer;
mod regions;
mod threads;
mod waiting;

pub(crate) use handshake::{Given, HandshakeFds};
pub(crate) use one_sided::{Ends, Seen};
pub(crate) use peer::{NO_REFERENCES, Peer, Referred, TxRing};
use regions::Reached;
pub(crate) use regions::{Listed, MemoryRoute};
pub(crate) use waiting::{Withdrawn, let_fetch};

/// `KeyEntry::how`: pages of the owner's shared file. The entry's address is an offset in the file.
pub(crate) const SHARED: u8 = 0;
/// `KeyEntry::how`: the owner's private memory, reached by system calls.
pub(crate) const PRIVATE: u8 = 1;

/// Bytes of payload in a packet between two processes of a host. With this length, the cost of a
/// packet is small beside the cost of copying the payload.
pub(crate) const MTU: u32 = 64 << 10;
/// The largest number of rings read for a peer: the current ring, and earlier rings.
const RINGS: usize = 4;
/// Time before the next handshake message to a process that refused or did not answer.
const REFUSED: Duration = Duration::from_secs(5);
/// The largest number of doorbells checked in a single call.
const LOOKS: usize = 16;

/// Number of peers a process may be: a peer for each loaded copy of this library. Each peer costs
/// descriptors and memory.
pub(crate) const COPIES: usize = 4;

/// All peers of a process.
pub(crate) struct HostConnections {
    pub(crate) nonce: u64,
    pub(crate) published: Published,
    pub(crate) tables: PeerFd,
    /// A doorbell for each peer, and the watched ends of the peers. The descriptor is readable when
    /// a doorbell was rung or a peer ended.
    pub(crate) doorbells: Doorbells,
    pub(crate) file: &'static SharedFile,
    pub(crate) reached: Reached,
    by_slot: RankedRw<HashMap<Slot, Arc<Peer>>, ranks::PeersBySlot>,
    /// Every peer once. `version` changes with the list.
    pub(crate) all: RankedRw<Vec<Arc<Peer>>, ranks::Peers>,
    /// Peers that this process has left, while their processes live on. A thread of such a peer may
    /// be in the middle of a copy, so [`HostConnections::settle`] reads the hazards of these peers
    /// as well.
    departed: Ranked<Vec<Arc<Peer>>, ranks::Departed>,
    version: AtomicU32,
    any: AtomicBool,
    /// Objects given to processes with a handshake message, until the answer arrives.
    pub(crate) unanswered: Ranked<HashMap<Slot, Given>, ranks::Unanswered>,
    /// Held by the thread that waits for the answer to a handshake message.
    pub(crate) handshaking: Ranked<(), ranks::Handshaking>,
    refused: Ranked<HashMap<Slot, Instant>, ranks::Refused>,
    /// Number of threads asleep until a doorbell is rung. Locked while the published announcement
    /// changes, so that no thread clears the announcement of another thread.
    sleepers: Ranked<usize, ranks::Sleepers>,
    /// Number of keys taken back by this process: see [`one_sided`].
    taken_back: AtomicU64,
    /// Held by the thread that changes the published tables.
    pub(crate) publishing: Ranked<(), ranks::Publishing>,
}

impl HostConnections {
    /// The objects shared with other processes. `errors` counts failures of sockets.
    ///
    /// # Errors
    /// Errors of the kernel: no `memfd`, no descriptors, no memory. All packets then go over the
    /// network.
    pub(crate) fn new(errors: Arc<SocketErrors>) -> std::io::Result<Self> {
        let file = SharedFile::of_process()?;
        let (published, tables) = Published::create().map_err(std::io::Error::other)?;
        let doorbells = Doorbells::new(errors)?;
        Ok(HostConnections {
            nonce: published.identity().nonce,
            published,
            tables: doorbells.keep(tables)?,
            doorbells,
            file,
            reached: Reached::default(),
            by_slot: RankedRw::default(),
            all: RankedRw::default(),
            departed: Ranked::default(),
            version: AtomicU32::new(0),
            any: AtomicBool::new(false),
            unanswered: Ranked::default(),
            handshaking: Ranked::default(),
            refused: Ranked::default(),
            sleepers: Ranked::default(),
            taken_back: AtomicU64::new(0),
            publishing: Ranked::default(),
        })
    }

    /// Are there peers?
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Some of the peers that rang or ended.
    pub(crate) fn ready(&self) -> Vec<Arc<Peer>> {
        let mut ids = [0; LOOKS];
        let n = self.doorbells.ready(&mut ids);
        if n == 0 {
            return Vec::new();
        }
        self.departed.lock().retain(|peer| {
            let ended = ids[..n].contains(&peer.id) && peer.links.is_to_bury();
            if ended {
                peer.bury(&self.doorbells);
            }
            !ended
        });
        let all = self.all.read();
        all.iter().filter(|peer| ids[..n].contains(&peer.id)).cloned().collect()
    }

    /// The owner of a slot, if known.
    pub(crate) fn known(&self, slot: Slot) -> Option<Arc<Peer>> {
        self.by_slot.read().get(&slot).cloned()
    }

    /// Brings the receiver's list of rings up to date.
    #[inline]
    pub(crate) fn refresh(&self, rings: &mut Rings) {
        let version = self.version.load(Ordering::Acquire);
        if rings.version != version {
            self.relist(rings, version);
        }
    }

    #[cold]
    fn relist(&self, rings: &mut Rings, version: u32) {
        rings.version = version;
        let all = self.all.read();
        rings.list.retain(|(peer, _)| all.iter().any(|p| Arc::ptr_eq(p, peer)));
        for peer in all.iter() {
            rings.list.extend(peer.take_rings().into_iter().map(|ring| (peer.clone(), ring)));
            // A repeated handshake gives the peer a new ring. The oldest rings are dropped.
            let of_peer = |(p, _): &(Arc<Peer>, Consumer)| Arc::ptr_eq(p, peer);
            while rings.list.iter().filter(|entry| of_peer(entry)).count() > RINGS {
                let Some(oldest) = rings.list.iter().position(of_peer) else { break };
                rings.list.remove(oldest);
            }
        }
    }

    /// Adds a ring from a peer.
    pub(crate) fn add_ring(&self, peer: &Peer, ring: Consumer) {
        peer.give_ring(ring);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Is the connection mutual? True if the peer's tables say that its queue pair is ready and
    /// connected to ours (`ends`). Then it sends to us through a ring.
    pub(crate) fn is_answered(&self, peer: &Peer, ends: Ends) -> bool {
        peer.tables.qp(ends.dest_qpn).is_some_and(|(entry, _)| {
            entry.ready && entry.peer_qpn == ends.qpn && entry.peer_nonce == self.nonce
        })
    }

    pub(crate) fn refuses(&self, slot: Slot) -> bool {
        self.refused.lock().get(&slot).is_some_and(|until| Instant::now() < *until)
    }

    pub(crate) fn refuse(&self, slot: Slot) {
        self.refused.lock().insert(slot, Instant::now() + REFUSED);
    }

    /// Enters a peer, which holds the slots according to the kernel.
    pub(crate) fn enter(&self, slots: &[Slot], peer: &Arc<Peer>) {
        let mut all = self.all.write();
        if peer.was_left() {
            return;
        }
        {
            let mut by_slot = self.by_slot.write();
            for slot in slots {
                by_slot.insert(*slot, peer.clone());
            }
        }
        if !all.iter().any(|p| Arc::ptr_eq(p, peer)) {
            all.push(peer.clone());
            self.version.fetch_add(1, Ordering::AcqRel);
        }
        self.any.store(true, Ordering::Release);
    }

    /// Forgets a peer that has ended or left, and drops all objects shared by the peer.
    pub(crate) fn remove(&self, peer: &Arc<Peer>) {
        // Entered into `departed` first, as [`HostConnections::settle`] must find the peer at every
        // moment.
        self.departed.lock().push(peer.clone());
        let mut all = self.all.write();
        self.by_slot.write().retain(|_, p| !Arc::ptr_eq(p, peer));
        all.retain(|p| !Arc::ptr_eq(p, peer));
        self.version.fetch_add(1, Ordering::AcqRel);
        drop(all);
        let lives = peer.let_go(&self.doorbells);
        let mut departed = self.departed.lock();
        // A peer may come and leave repeatedly, with the same tables each time. The tables are kept
        // once. A thread that waits for `peer` also waits for the older value with the same tables.
        let same = |p: &Arc<Peer>| p.is_of_the_tables_of(peer) && !Arc::ptr_eq(p, peer);
        if !lives || departed.iter().any(same) {
            departed.retain(|p| !Arc::ptr_eq(p, peer));
            peer.bury(&self.doorbells);
            return;
        }
        // A process uses at most as many tables as loaded copies of this library. Older tables
        // belong to the program before an `exec`, or to a lying process.
        let of_process = |p: &Arc<Peer>| p.pid == peer.pid;
        if departed.iter().filter(|p| of_process(p)).count() > COPIES
            && let Some(oldest) = departed.iter().position(of_process)
        {
            departed.remove(oldest).bury(&self.doorbells);
        }
    }

    /// Drops a peer after a lie. No thread waits for this peer any more.
    fn forget_departed(&self, peer: &Arc<Peer>) {
        let mut departed = self.departed.lock();
        if departed.iter().any(|p| Arc::ptr_eq(p, peer)) {
            departed.retain(|p| !Arc::ptr_eq(p, peer));
            peer.bury(&self.doorbells);
        }
    }

    /// Called in a child of `fork`. Closes the inherited descriptors, so the child keeps neither
    /// the parent alive for peers nor memory of parent and peers. Only `fstat` and `close` are
    /// called.
    pub(crate) fn close_after_fork(&self) {
        self.doorbells.close_after_fork();
        self.published.close_after_fork();
    }

    /// A thread is about to sleep until packets come. Sleep protocol:
    ///
    /// 1. The thread stores the announcement (`set_sleeping`), followed by a SeqCst fence.
    /// 2. The thread checks the rings. Any later writer sees the announcement.
    /// 3. If the rings are empty, the thread sleeps. [`HostConnections::awake`] ends the sleep.
    pub(crate) fn sleeps(&self) {
        let mut sleepers = self.sleepers.lock();
        *sleepers += 1;
        if *sleepers == 1 {
            self.published.set_sleeping(true);
        }
        drop(sleepers);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// Ends [`HostConnections::sleeps`].
    pub(crate) fn awake(&self) {
        let mut sleepers = self.sleepers.lock();
        *sleepers -= 1;
        if *sleepers == 0 {
            self.published.set_sleeping(false);
        }
        // Each announcement is rung for once, so the announcement is repeated for the threads still
        // asleep. This thread takes the records written before.
        if self.take_doorbells() && *sleepers > 0 {
            self.published.set_sleeping(true);
        }
    }

    /// Has a doorbell been rung? With more than [`LOOKS`] such peers, the remaining doorbells stay
    /// readable.
    fn take_doorbells(&self) -> bool {
        // `fold` checks every peer.
        self.any()
            && self.ready().iter().fold(false, |rung, peer| peer.links.take_doorbell() | rung)
    }
}

/// The rings from peers, owned by the receiving thread.
#[derive(Default)]
pub(crate) struct Rings {
    version: u32,
    pub(crate) list: Vec<(Arc<Peer>, Consumer)>,
}

impl Rings {
    /// Does no ring hold a record?
    pub(crate) fn are_empty(&self) -> bool {
        self.list.iter().all(|(_, ring)| ring.is_empty())
    }
}
