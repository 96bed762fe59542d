//! The other processes of this user on this host, and this process itself, as peers that need no
//! network.
//!
//! Two processes greet each other once ([`adverb_local::Hello`]): each gives the other a ring to
//! write to, its published tables, the file that holds its shared memory, and a bell
//! ([`handshake`]). From then on packets between their queue pairs go through the rings
//! ([`crate::node`] carries them), and one-sided requests are performed by the initiator itself in
//! the peer's memory ([`direct`]). Who does not answer, or may not share, is reached over the
//! network as any other host.
use crate::ranks;
use adverb_local::{Bells, PeerFd, Slot};
use adverb_memory::SharedFile;
use adverb_os::SocketErrors;
use adverb_shm::{Consumer, Published};
use adverb_sync::{Ranked, RankedRw};
use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

mod direct;
mod filled;
mod handshake;
mod parts;
mod peer;
mod regions;
mod threads;
mod waiting;

pub(crate) use direct::{Ends, Seen};
pub(crate) use handshake::{Given, HandshakeFds};
pub(crate) use parts::{Lane, Referred};
pub(crate) use peer::{NO_REFERENCES, Peer};
use regions::Reached;
pub(crate) use regions::{Listed, Place};
pub(crate) use waiting::{Withdrawn, let_fetch};

/// `KeyEntry::how`: pages of the file that the owner shares; the entry's address is an offset in
/// it.
pub(crate) const SHARED: u8 = 0;
/// `KeyEntry::how`: the owner's private memory, reached by system calls.
pub(crate) const PRIVATE: u8 = 1;

/// Bytes of payload in a packet between two processes of a host: long enough that what a packet
/// costs beside copying it is little.
pub(crate) const MTU: u32 = 64 << 10;
/// Rings of a peer that are read at most: the one it writes to now, and those it was given before.
const RINGS: usize = 4;
/// How long a process that did not answer, or did not want to, is not greeted again.
const REFUSED: Duration = Duration::from_secs(5);
/// Peers whose bells are looked at in one go.
const LOOKS: usize = 16;

/// Which way packets between processes of one host go (`ADVERB_PATH`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathChoice {
    /// Through shared memory where that is possible.
    Local,
    /// Always over the network.
    Wire,
}

/// What the program's environment asks for.
///
/// # Errors
/// EINVAL for anything but `local` and `wire`.
pub(crate) fn path_choice() -> Result<PathChoice, crate::Error> {
    match std::env::var("ADVERB_PATH").as_deref() {
        Err(_) | Ok("" | "local") => Ok(PathChoice::Local),
        Ok("wire") => Ok(PathChoice::Wire),
        Ok(other) => {
            Err(crate::Error::invalid(format!("ADVERB_PATH is {other:?}"), "it is \"local\" or \"wire\""))
        }
    }
}

/// Peers that one process is at most: one for each copy of this library that it has loaded. Each
/// costs descriptors and memory.
pub(crate) const COPIES: usize = 4;

/// All peers of a process.
pub(crate) struct Lanes {
    pub(crate) nonce: u64,
    pub(crate) published: Published,
    pub(crate) tables: PeerFd,
    /// One a peer, and the peers' ends.
    pub(crate) bells: Bells,
    pub(crate) file: &'static SharedFile,
    pub(crate) reached: Reached,
    by_slot: RankedRw<HashMap<Slot, Arc<Peer>>, ranks::PeersBySlot>,
    /// Every peer once, and a number that changes with the list.
    pub(crate) all: RankedRw<Vec<Arc<Peer>>, ranks::Peers>,
    /// Peers that were left and whose processes live on. A thread of theirs may be in the middle of
    /// a copy, so [`Lanes::settle`] looks at their marks as well.
    departed: Ranked<Vec<Arc<Peer>>, ranks::Departed>,
    version: AtomicU32,
    any: AtomicBool,
    /// What processes were given that were greeted and have not answered.
    pub(crate) greeted: Ranked<HashMap<Slot, Given>, ranks::Greeted>,
    /// One thread greets at a time.
    pub(crate) greeting: Ranked<(), ranks::Greeting>,
    refused: Ranked<HashMap<Slot, Instant>, ranks::Refused>,
    /// Threads that sleep until a bell rings; locked while the announcement changes, so that none
    /// takes back another's.
    sleepers: Ranked<usize, ranks::Sleepers>,
    /// Keys of this process that were taken back: see [`direct`].
    taken_back: AtomicU64,
    /// Whoever publishes something or takes it back has the turn.
    pub(crate) publishing: Ranked<(), ranks::Publishing>,
}

impl Lanes {
    /// What a process shares with others. `errors` notes sockets that fail.
    ///
    /// # Errors
    /// What the kernel refuses: no `memfd`, no descriptors, no memory. Then everything goes over
    /// the network.
    pub(crate) fn new(errors: Arc<SocketErrors>) -> std::io::Result<Self> {
        let file = SharedFile::of_process()?;
        let (published, tables) = Published::create().map_err(std::io::Error::other)?;
        let bells = Bells::new(errors)?;
        Ok(Lanes {
            nonce: published.identity().nonce,
            published,
            tables: bells.keep(tables)?,
            bells,
            file,
            reached: Reached::default(),
            by_slot: RankedRw::default(),
            all: RankedRw::default(),
            departed: Ranked::default(),
            version: AtomicU32::new(0),
            any: AtomicBool::new(false),
            greeted: Ranked::default(),
            greeting: Ranked::default(),
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

    /// Readable when a bell rang or a peer ended.
    pub(crate) fn control_fd(&self) -> Option<BorrowedFd<'_>> {
        self.bells.fd()
    }

    /// Some of the peers that rang or ended.
    pub(crate) fn ready(&self) -> Vec<Arc<Peer>> {
        let mut ids = [0; LOOKS];
        let n = self.bells.ready(&mut ids);
        if n == 0 {
            return Vec::new();
        }
        self.departed.lock().retain(|peer| {
            let ended = ids[..n].contains(&peer.id()) && peer.is_to_bury();
            if ended {
                peer.bury(&self.bells);
            }
            !ended
        });
        let all = self.all.read();
        all.iter().filter(|peer| ids[..n].contains(&peer.id())).cloned().collect()
    }

    /// The peer that owns a slot, if it is known.
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
            // The oldest go, of one that goes on greeting.
            let of_peer = |(p, _): &(Arc<Peer>, Consumer)| Arc::ptr_eq(p, peer);
            while rings.list.iter().filter(|entry| of_peer(entry)).count() > RINGS {
                let Some(oldest) = rings.list.iter().position(of_peer) else { break };
                rings.list.remove(oldest);
            }
        }
    }

    /// A peer writes to one more ring.
    pub(crate) fn add_ring(&self, peer: &Peer, ring: Consumer) {
        peer.give_ring(ring);
        self.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Does the peer's queue pair at the other end send through a lane, as its tables say?
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

    /// Enters a peer, which holds the slots as the kernel says.
    pub(crate) fn enter(&self, slots: &[Slot], peer: &Arc<Peer>) {
        let mut all = self.all.write();
        if peer.is_gone() {
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

    /// Forgets a peer that has ended or left, and lets go of all that is its.
    pub(crate) fn remove(&self, peer: &Arc<Peer>) {
        // Entered here first, so that [`Lanes::settle`] misses it at no moment.
        self.departed.lock().push(peer.clone());
        let mut all = self.all.write();
        self.by_slot.write().retain(|_, p| !Arc::ptr_eq(p, peer));
        all.retain(|p| !Arc::ptr_eq(p, peer));
        self.version.fetch_add(1, Ordering::AcqRel);
        drop(all);
        let lives = peer.let_go(&self.bells);
        let mut departed = self.departed.lock();
        // One that comes and leaves all the time has the same tables each time, which are kept
        // once. A thread that waits for `peer` knows the other, too: that is older.
        let same = |p: &Arc<Peer>| p.is_of_the_tables_of(peer) && !Arc::ptr_eq(p, peer);
        if !lives || departed.iter().any(same) {
            departed.retain(|p| !Arc::ptr_eq(p, peer));
            peer.bury(&self.bells);
            return;
        }
        // A process has no more tables that are in use than copies of this library. What goes is of
        // a program that the process was before an `exec`, or of a process that lies.
        let of_process = |p: &Arc<Peer>| p.pid() == peer.pid();
        if departed.iter().filter(|p| of_process(p)).count() > COPIES
            && let Some(oldest) = departed.iter().position(of_process)
        {
            departed.remove(oldest).bury(&self.bells);
        }
    }

    /// A peer that was left, and is waited for no more: it lied.
    fn forget_departed(&self, peer: &Arc<Peer>) {
        let mut departed = self.departed.lock();
        if departed.iter().any(|p| Arc::ptr_eq(p, peer)) {
            departed.retain(|p| !Arc::ptr_eq(p, peer));
            peer.bury(&self.bells);
        }
    }

    /// In a child of `fork`, which is not to keep its parent alive in the eyes of peers, nor memory
    /// of either. Only `fstat` and `close` are called.
    pub(crate) fn close_after_fork(&self) {
        self.bells.close_after_fork();
        self.published.close_after_fork();
    }

    /// A thread is about to sleep until packets come, unless some wait already: it looks into the
    /// rings after this, so that whoever writes to one in between sees the announcement.
    /// [`Lanes::awake`] ends it.
    pub(crate) fn sleeps(&self) {
        let mut sleepers = self.sleepers.lock();
        *sleepers += 1;
        if *sleepers == 1 {
            self.published.set_sleeping(true);
        }
        drop(sleepers);
        std::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The thread that slept is awake.
    pub(crate) fn awake(&self) {
        let mut sleepers = self.sleepers.lock();
        *sleepers -= 1;
        if *sleepers == 0 {
            self.published.set_sleeping(false);
        }
        // For threads that still sleep it is announced anew, as each announcement is rung for once.
        // What came before that is this thread's to take.
        if self.take_bells() && *sleepers > 0 {
            self.published.set_sleeping(true);
        }
    }

    /// Did a bell ring? Those of more than a few peers ring again.
    fn take_bells(&self) -> bool {
        // Each is looked at.
        self.any() && self.ready().iter().fold(false, |rung, peer| peer.take_bell() | rung)
    }
}

/// The rings that peers write to, in the hands of the one who receives.
#[derive(Default)]
pub(crate) struct Rings {
    version: u32,
    pub(crate) list: Vec<(Arc<Peer>, Consumer)>,
}

impl Rings {
    /// Does none hold a record?
    pub(crate) fn are_empty(&self) -> bool {
        self.list.iter().all(|(_, ring)| ring.is_empty())
    }
}
