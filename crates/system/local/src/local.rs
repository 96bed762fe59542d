//! This process among those of its user: its slots, what it holds of the others, and the packets
//! that it gives them.
//!
//! What its fields are made of lies in files that know nothing of it: [`crate::message`],
//! [`crate::connection`] and others. Those that know it add methods: to connect, to greet, to
//! serve.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use adverb_os::sys::FdTable;
use adverb_os::{OsError, SocketErrors};
use adverb_sync::{Mutex, RwLock};

use crate::connection::{ConnectionId, Incoming, Outgoing, Services, Untold};
use crate::error::LocalError;
use crate::frame_queue::Frames;
use crate::message::{self, Greeting};
use crate::packet::{Delivery, Envelope};
use crate::slot::{SLOT_BITS, Slot, SlotClaim};
use crate::stats::{Counters, LocalStats, add};
use crate::user::LocalUser;

/// How long a full hand-over socket may hold the hander up.
const HAND_ON_WAIT: Duration = Duration::from_millis(2);
/// For how long it is not waited for again after that.
const HAND_ON_PAUSE: Duration = Duration::from_millis(50);

/// One process of a user on a host, and its connections to the others. Every method takes `&self`
/// and may be called from any thread.
pub struct Local {
    pub(crate) seed: u64,
    pub(crate) user: LocalUser,
    pub(crate) fds: Arc<FdTable>,
    pub(crate) errors: Arc<SocketErrors>,
    pub(crate) counters: Counters,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    pub(crate) services: Services,
    pub(crate) frames: Frames,
    pub(crate) claims: RwLock<Arc<Vec<Arc<SlotClaim>>>>,
    /// Slots claimed so far.
    claimed: AtomicUsize,
    /// One bit a slot.
    own: [AtomicU64; (1 << SLOT_BITS) / 64],
    pub(crate) greetings: Mutex<Vec<Greeting>>,
    pub(crate) greeted: AtomicBool,
    /// Connections to others that have ended.
    pub(crate) ended: Mutex<Vec<ConnectionId>>,
    made: Instant,
    /// Milliseconds since `made` until which no full hand-over socket is waited for.
    hand_on_pause: AtomicU64,
}

impl Local {
    /// This process, with one slot. `seed` says where the search for a free slot starts. Give each
    /// process another value, so that the slot of a dead process, and with it its queue pair
    /// numbers, is not reused at once.
    ///
    /// # Errors
    /// [`LocalError::NoFreeSlot`], [`OsError::OutOfDescriptors`] and what else claiming a slot may
    /// meet.
    pub fn new(seed: u64) -> Result<Arc<Self>, LocalError> {
        Self::of_user(seed, LocalUser::current())
    }

    pub(crate) fn of_user(seed: u64, user: LocalUser) -> Result<Arc<Self>, LocalError> {
        let fds = FdTable::new();
        let incoming =
            Incoming::new(&fds).map_err(|error| OsError::from_io("watch the slots' connections", error))?;
        let local = Local {
            seed,
            user,
            fds,
            errors: Arc::default(),
            counters: Counters::default(),
            outgoing: Outgoing::default(),
            incoming,
            services: Services::default(),
            frames: Frames::default(),
            claims: RwLock::default(),
            claimed: AtomicUsize::new(0),
            own: [const { AtomicU64::new(0) }; (1 << SLOT_BITS) / 64],
            greetings: Mutex::default(),
            greeted: AtomicBool::new(false),
            ended: Mutex::default(),
            made: Instant::now(),
            hand_on_pause: AtomicU64::new(0),
        };
        local.claim()?;
        Ok(Arc::new(local))
    }

    /// Claims one more slot: [`crate::SLOT_SHIFT`] bits more of QPNs.
    ///
    /// # Errors
    /// As [`SlotClaim::claim`].
    pub fn claim_slot(&self) -> Result<Slot, LocalError> {
        self.check_user()?;
        self.claim()
    }

    fn claim(&self) -> Result<Slot, LocalError> {
        let mut claims = self.claims.write();
        let claim = Arc::new(SlotClaim::claim_in(&self.fds, self.seed.wrapping_add(claims.len() as u64))?);
        let slot = claim.slot();
        self.own_slot(slot);
        *claims = Arc::new([&claims[..], std::slice::from_ref(&claim)].concat());
        self.incoming
            .add_listener(slot, &claim.fd)
            .map_err(|error| OsError::from_io("watch a slot's connections", error))?;
        self.claimed.fetch_add(1, Release);
        Ok(slot)
    }

    pub(crate) fn own_slot(&self, slot: Slot) {
        self.own[usize::from(slot) / 64].fetch_or(1 << (slot % 64), Relaxed);
    }

    pub(crate) fn disown(&self, slot: Slot) {
        self.own[usize::from(slot) / 64].fetch_and(!(1 << (slot % 64)), Relaxed);
    }

    pub(crate) fn claims(&self) -> Arc<Vec<Arc<SlotClaim>>> {
        self.claims.read().clone()
    }

    /// The slots claimed, the first one first.
    pub fn slots(&self) -> Vec<Slot> {
        self.claims().iter().map(|claim| claim.slot()).collect()
    }

    /// How often a slot was claimed: changes with the slots.
    #[inline]
    pub fn claimed(&self) -> usize {
        self.claimed.load(Acquire)
    }

    /// Whether the slot is this process's.
    #[inline]
    pub fn owns(&self, slot: Slot) -> bool {
        self.own.get(usize::from(slot) / 64).is_some_and(|word| word.load(Relaxed) >> (slot % 64) & 1 != 0)
    }

    /// Where operations on sockets that fail are noted.
    pub fn errors(&self) -> &Arc<SocketErrors> {
        &self.errors
    }

    /// The descriptors of this process's sockets. `close_all` closes them with close(2) and nothing
    /// else, so that the child of a fork can call it from an `atfork` handler. The value is of no
    /// use afterwards; dropping it is allowed and does nothing to the parent. `has_lost_one`: the
    /// program has closed one of them, and the number may be that of a file of its own by now.
    pub fn descriptors(&self) -> &Arc<FdTable> {
        &self.fds
    }

    /// Readable while something came for [`Local::receive`]. `None` in the child of a fork.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.incoming.any.borrow()
    }

    /// Gives packets to another process of this user on this host directly, without the network:
    /// for transports that have no flow control, which a burst over UDP would lose. `packets` was
    /// filled with [`add_packet`](crate::add_packet).
    pub fn deliver(&self, slot: Slot, envelope: &Envelope, packets: &[u8]) -> Delivery {
        let header = message::packets_header(envelope, true);
        match self.tell(slot, &[&header, packets], &[]) {
            Ok(_) => {
                add(&self.counters.delivered, message::packets(packets).count() as u64);
                Delivery::Done
            }
            Err(Untold::Full) => Delivery::Full,
            Err(_) => Delivery::NoOwner,
        }
    }

    /// Counts packets that [`Local::deliver`] found no room for and that are dropped.
    pub fn gave_up(&self, packets: &[u8]) {
        add(&self.counters.deliver_drop_deaf, message::packets(packets).count() as u64);
    }

    /// Sends packets (each behind its length) that came here to the owner of the slot. `false`:
    /// there is none.
    pub fn hand_on(&self, slot: Slot, envelope: &Envelope, packets: &[u8]) -> bool {
        let count = message::packets(packets).count() as u64;
        let header = message::packets_header(envelope, false);
        let mut until = None;
        loop {
            let Err(error) = self.tell(slot, &[&header, packets], &[]) else {
                add(&self.counters.handed_on_out, count);
                return true;
            };
            match error {
                // A connection holds few messages; its owner may need a moment.
                Untold::Full => {
                    let now = self.made.elapsed();
                    let until = *until.get_or_insert(now + HAND_ON_WAIT);
                    if now >= until || (now.as_millis() as u64) < self.hand_on_pause.load(Relaxed) {
                        if now >= until {
                            self.hand_on_pause.store((now + HAND_ON_PAUSE).as_millis() as u64, Relaxed);
                        }
                        add(&self.counters.handed_on_drop_full, count);
                        return true;
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
                _ => return false,
            }
        }
    }

    /// Counts a packet of a message that its [`Taker`](crate::Taker) drops: it is malformed, or
    /// not for this process.
    pub fn note_malformed(&self) {
        add(&self.counters.handover_drop_malformed, 1);
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> LocalStats {
        LocalStats {
            network_errors: self.errors.network(),
            socket_errors: self.errors.failed(),
            ..self.counters.snapshot()
        }
    }
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").field("slots", &self.slots()).finish_non_exhaustive()
    }
}
