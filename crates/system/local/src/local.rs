//! This process among the processes of its user: its slots, its tables of the other processes, and
//! packets for them.
//!
//! The types of the fields are in files without a dependency on this file: [`crate::message`],
//! [`crate::connection`] and others. Other files add methods: to connect, to greet, to serve.

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
use crate::questions::Questions;
use crate::slot::{SLOT_BITS, Slot, SlotClaim};
use crate::stats::{Counters, LocalStats, add};
use crate::user::LocalUser;

/// How long a full hand-over socket may block [`Local::hand_on`].
const HAND_ON_WAIT: Duration = Duration::from_millis(2);
/// After such a wait: for how long no full socket is waited for.
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
    pub(crate) questions: Questions,
    pub(crate) claims: RwLock<Arc<Vec<Arc<SlotClaim>>>>,
    /// The number of slots claimed so far.
    claimed: AtomicUsize,
    /// One bit for each slot; set for own slots.
    own: [AtomicU64; (1 << SLOT_BITS) / 64],
    pub(crate) greetings: Mutex<Vec<Greeting>>,
    pub(crate) greeted: AtomicBool,
    /// Outgoing connections that have ended.
    pub(crate) ended: Mutex<Vec<ConnectionId>>,
    made: Instant,
    /// Until this time, in milliseconds since `made`, no full hand-over socket is waited for.
    hand_on_pause: AtomicU64,
}

impl Local {
    /// Creates this process with one slot. `seed` determines the start of the search for a free
    /// slot. Each process should use another seed. Otherwise a new process would at once reuse the
    /// slot, and so the queue pair numbers, of a dead process.
    ///
    /// # Errors
    /// [`LocalError::NoFreeSlot`], [`OsError::OutOfDescriptors`], and other errors of claiming a
    /// slot.
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
            questions: Questions::default(),
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

    /// Claims one more slot, for `1 <<` [`crate::SLOT_SHIFT`] more QPNs.
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

    /// The claimed slots, the first claim first.
    pub fn slots(&self) -> Vec<Slot> {
        self.claims().iter().map(|claim| claim.slot()).collect()
    }

    /// How often a slot was claimed. Changes whenever the slots change.
    #[inline]
    pub fn claimed(&self) -> usize {
        self.claimed.load(Acquire)
    }

    /// Whether this process owns the slot.
    #[inline]
    pub fn owns(&self, slot: Slot) -> bool {
        self.own.get(usize::from(slot) / 64).is_some_and(|word| word.load(Relaxed) >> (slot % 64) & 1 != 0)
    }

    /// The record of failed socket operations.
    pub fn errors(&self) -> &Arc<SocketErrors> {
        &self.errors
    }

    /// The descriptors of this process's sockets. `close_all` closes them by close(2) and nothing
    /// else, so the child of a fork can call it in an `atfork` handler. Afterwards the value is
    /// unusable; dropping it is allowed and does not affect the parent. `has_lost_one` is true if
    /// the program has closed one of the descriptors. The number may belong to a file of the
    /// program by now.
    pub fn descriptors(&self) -> &Arc<FdTable> {
        &self.fds
    }

    /// Readable while there is something for [`Local::receive`]. `None` in the child of a fork.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.incoming.any.borrow()
    }

    /// Gives packets to another process of this user on this host without the network. This is for
    /// transports without flow control, because UDP would lose parts of a burst.
    /// [`add_packet`](crate::add_packet) fills `packets`.
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

    /// Counts packets dropped because [`Local::deliver`] found no room.
    pub fn gave_up(&self, packets: &[u8]) {
        add(&self.counters.deliver_drop_deaf, message::packets(packets).count() as u64);
    }

    /// Sends received packets, each preceded by its length, to the owner of the slot. Returns
    /// `false` if there is no owner.
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
                // A connection holds few messages; the receiver may need a moment.
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

    /// Counts a packet dropped by the [`Taker`](crate::Taker): the packet is malformed, or not for
    /// this process.
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
