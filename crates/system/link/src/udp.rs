//! The link itself: its sockets, its slots, and handing packets on.
//!
//! What its fields are made of lies in files that know nothing of it: [`crate::packet`],
//! [`crate::message`], [`crate::connection`] and others. Those that know it add methods: to
//! receive, to hand over, to steer.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use adverb_sync::{Mutex, RwLock};

use crate::address::{self, AddressSocket};
use crate::buffers::RxBuffers;
use crate::capture::{Capture, Flow};
use crate::connection::{ConnectionId, Incoming, Outgoing, Services, Untold};
use crate::error::LinkError;
use crate::everywhere::Everywhere;
use crate::faults::Faults;
use crate::frame_queue::Frames;
use crate::message::{self, Greeting};
use crate::packet::{Envelope, OwnedPacket, RxPacket};
use crate::slot::{SLOT_BITS, Slot, SlotClaim};
use crate::stats::{Counters, LinkStats, add};
use crate::types::{AddrIndex, Config, Delivery, FdKind, Route};
use crate::user::LinkUser;
use adverb_os::OwnAddresses;
use adverb_os::SocketErrors;
use adverb_os::sys::{self, FdTable};

/// Most packets kept while a link without a running receiver measures its steering.
const PENDING: usize = 4096;
/// How long a full hand-over socket may hold the hander up.
const HAND_ON_WAIT: Duration = Duration::from_millis(2);
/// For how long it is not waited for again after that.
const HAND_ON_PAUSE: Duration = Duration::from_millis(50);

/// The sockets at one moment; replaced as a whole when one is added or removed.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    pub(crate) addresses: Vec<Option<Arc<AddressSocket>>>,
    pub(crate) claims: Vec<Arc<SlotClaim>>,
    /// Places of groups that were left.
    free: Vec<AddrIndex>,
}

impl Sockets {
    pub(crate) fn get(&self, index: AddrIndex) -> Option<&Arc<AddressSocket>> {
        self.addresses.get(index.get())?.as_ref()
    }

    /// The place of the next socket.
    fn next(&self) -> Result<AddrIndex, LinkError> {
        u16::try_from(self.addresses.len())
            .map(AddrIndex)
            .map_err(|_| LinkError::TooManySockets { limit: usize::from(u16::MAX) })
    }
}

/// Carries the packets of one process: a UDP socket for each local address, and its process slots.
/// Every method takes `&self` and may be called from any thread.
pub struct UdpLink {
    pub(crate) config: Config,
    pub(crate) user: LinkUser,
    pub(crate) fds: Arc<FdTable>,
    pub(crate) counters: Counters,
    /// There are faults or a capture: packets that arrive take the long way.
    pub(crate) tapped: bool,
    pub(crate) faults: Option<Faults>,
    pub(crate) capture: Option<Arc<Capture>>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
    pub(crate) services: Services,
    pub(crate) frames: Frames,
    pub(crate) own_addresses: OwnAddresses,
    pub(crate) errors: SocketErrors,
    everywhere: Everywhere,
    pub(crate) sockets: RwLock<Arc<Sockets>>,
    /// One bit a slot.
    own: [AtomicU64; (1 << SLOT_BITS) / 64],
    pub(crate) greetings: Mutex<Vec<Greeting>>,
    pub(crate) greeted: AtomicBool,
    /// Connections to others that have ended.
    pub(crate) ended: Mutex<Vec<ConnectionId>>,
    pub(crate) pending: Mutex<VecDeque<OwnedPacket>>,
    pub(crate) pending_len: AtomicUsize,
    /// Index of the address that was busy last.
    pub(crate) hot: AtomicUsize,
    /// Calls of `recv` for all sockets.
    pub(crate) calls: AtomicU32,
    /// Some address wants its steering measured.
    pub(crate) due: AtomicBool,
    /// It was said that another user holds the name that measuring is done in turns by.
    pub(crate) steer_warned: AtomicBool,
    made: Instant,
    /// Milliseconds since `made` until which no full hand-over socket is waited for.
    hand_on_pause: AtomicU64,
}

impl UdpLink {
    /// A link without addresses, with one slot.
    ///
    /// # Errors
    /// [`LinkError::NoFreeSlot`], [`LinkError::OutOfDescriptors`] and what else claiming a slot may
    /// meet.
    pub fn new(config: Config) -> Result<Self, LinkError> {
        let faults = (!config.faults.is_none()).then(|| Faults::new(config.faults.clone()));
        let fds = FdTable::new();
        let incoming =
            Incoming::new(&fds).map_err(|error| LinkError::from_io("watch the slots' connections", error))?;
        let link = UdpLink {
            tapped: faults.is_some() || config.capture.is_some(),
            faults,
            capture: config.capture.clone(),
            user: LinkUser::current(),
            outgoing: Outgoing::default(),
            incoming,
            services: Services::default(),
            frames: Frames::default(),
            own_addresses: OwnAddresses::default(),
            errors: SocketErrors::default(),
            everywhere: Everywhere::default(),
            fds,
            counters: Counters::default(),
            sockets: RwLock::default(),
            own: [const { AtomicU64::new(0) }; (1 << SLOT_BITS) / 64],
            greetings: Mutex::default(),
            greeted: AtomicBool::new(false),
            ended: Mutex::default(),
            pending: Mutex::default(),
            pending_len: AtomicUsize::new(0),
            hot: AtomicUsize::new(0),
            calls: AtomicU32::new(0),
            due: AtomicBool::new(false),
            steer_warned: AtomicBool::new(false),
            made: Instant::now(),
            hand_on_pause: AtomicU64::new(0),
            config,
        };
        link.claim_slot()?;
        Ok(link)
    }

    /// The UDP port, source and destination.
    pub fn port(&self) -> u16 {
        self.config.port
    }

    /// Claims one more slot: [`crate::SLOT_SHIFT`] bits more of QPNs.
    ///
    /// # Errors
    /// As [`SlotClaim::claim`].
    pub fn claim_slot(&self) -> Result<Slot, LinkError> {
        self.check_user()?;
        let mut sockets = self.sockets.write();
        let seed = self.config.seed.wrapping_add(sockets.claims.len() as u64);
        let claim = Arc::new(SlotClaim::claim_in(&self.fds, seed)?);
        let slot = claim.slot();
        self.own_slot(slot);
        let mut next = Sockets::clone(&sockets);
        next.claims.push(claim.clone());
        *sockets = Arc::new(next);
        self.incoming
            .add_listener(slot, &claim.fd)
            .map_err(|error| LinkError::from_io("watch a slot's connections", error))?;
        sockets.addresses.iter().flatten().for_each(|socket| self.want_steering(socket));
        Ok(slot)
    }

    pub(crate) fn own_slot(&self, slot: Slot) {
        self.own[usize::from(slot) / 64].fetch_or(1 << (slot % 64), Relaxed);
    }

    pub(crate) fn disown(&self, slot: Slot) {
        self.own[usize::from(slot) / 64].fetch_and(!(1 << (slot % 64)), Relaxed);
    }

    /// The slots claimed, the first one first.
    pub fn slots(&self) -> Vec<Slot> {
        self.sockets().claims.iter().map(|claim| claim.slot()).collect()
    }

    /// Whether the slot is this link's.
    pub fn owns(&self, slot: Slot) -> bool {
        self.own.get(usize::from(slot) / 64).is_some_and(|word| word.load(Relaxed) >> (slot % 64) & 1 != 0)
    }

    pub(crate) fn sockets(&self) -> Arc<Sockets> {
        self.sockets.read().clone()
    }

    pub(crate) fn socket(&self, index: AddrIndex) -> Option<Arc<AddressSocket>> {
        self.sockets.read().get(index).cloned()
    }

    /// Opens the socket of a local address; gives back the same index when it is open already.
    /// `scope_id` is the interface index of a link-local IPv6 address, else 0.
    ///
    /// When other processes share the address this measures the steering, which takes some
    /// milliseconds (bounded by about 200 when they do not answer).
    ///
    /// # Errors
    /// [`LinkError::PortTaken`], [`LinkError::NoSuchAddress`] and what else opening a socket may
    /// meet.
    pub fn add_address(&self, ip: IpAddr, scope_id: u32) -> Result<AddrIndex, LinkError> {
        let local = address::socket_addr(ip, scope_id, self.config.port);
        let socket = {
            let mut sockets = self.sockets.write();
            if let Some(socket) = sockets.addresses.iter().flatten().find(|s| s.local == local) {
                return Ok(socket.index);
            }
            let index = sockets.next()?;
            self.everywhere.hold(&self.fds, ip, &self.config)?;
            let socket = Arc::new(AddressSocket::open(&self.fds, index, ip, scope_id, &self.config)?);
            let mut next = Sockets::clone(&sockets);
            next.addresses.push(Some(socket.clone()));
            *sockets = Arc::new(next);
            socket
        };
        self.vouch(&socket);
        if self.config.steer {
            // Nobody may be receiving yet: keep what arrives while probes are waited for.
            let mut buffers = RxBuffers::new(1);
            self.resteer(&socket, &mut |socket| {
                let keep = &mut |packet: RxPacket<'_>| self.keep(&packet);
                self.recv_address(&self.sockets(), socket, &mut buffers, 256, keep);
            });
        }
        Ok(socket.index)
    }

    /// An operation on a socket of this link failed. Counts the error. The first of its kind is
    /// said at level `warn`.
    pub fn socket_failed(&self, doing: &'static str, error: &std::io::Error) {
        self.errors.note(doing, error);
    }

    /// Puts another socket into the place of an address.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn replace_socket(&self, index: AddrIndex, socket: AddressSocket) {
        let mut sockets = self.sockets.write();
        let mut next = Sockets::clone(&sockets);
        next.addresses[index.get()] = Some(Arc::new(socket));
        *sockets = Arc::new(next);
    }

    pub(crate) fn keep(&self, packet: &RxPacket<'_>) {
        let mut pending = self.pending.lock();
        if pending.len() == PENDING {
            return add(&self.counters.rx_drop_pending, 1);
        }
        pending.push_back(OwnedPacket::keep(packet));
        self.pending_len.store(pending.len(), Relaxed);
    }

    /// Closes the socket of an address. Packets to it are answered by nobody from then on.
    pub fn remove_address(&self, index: AddrIndex) {
        let removed = {
            let mut sockets = self.sockets.write();
            let mut next = Sockets::clone(&sockets);
            let removed = next.addresses.get_mut(index.get()).and_then(Option::take);
            *sockets = Arc::new(next);
            self.own_addresses.renew();
            removed
        };
        if let Some(socket) = removed {
            // A receiver at work in another thread may hold the socket, and keep it open, a moment
            // longer.
            self.refresh_others(socket);
        }
    }

    /// Joins a multicast group on an interface. Its packets are handed out with the group as their
    /// destination.
    ///
    /// # Errors
    /// [`LinkError::OutOfMemory`] and what else opening a socket may meet.
    pub fn join_group(&self, group: IpAddr, interface: u32) -> Result<AddrIndex, LinkError> {
        self.everywhere.hold(&self.fds, group, &self.config)?;
        let mut sockets = self.sockets.write();
        let mut next = Sockets::clone(&sockets);
        let index = match next.free.pop() {
            Some(index) => index,
            None => {
                let index = next.next()?;
                next.addresses.push(None);
                index
            }
        };
        let socket = AddressSocket::join(&self.fds, index, group, interface, &self.config)?;
        next.addresses[index.get()] = Some(Arc::new(socket));
        *sockets = Arc::new(next);
        Ok(index)
    }

    /// Leaves a multicast group. Its index may be that of another one from then on.
    pub fn leave_group(&self, index: AddrIndex) {
        let mut sockets = self.sockets.write();
        let mut next = Sockets::clone(&sockets);
        if let Some(place) =
            next.addresses.get_mut(index.get()).filter(|s| s.as_ref().is_some_and(|s| s.is_group()))
        {
            *place = None;
            next.free.push(index);
            *sockets = Arc::new(next);
        }
    }

    /// The address of an index.
    pub fn address(&self, index: AddrIndex) -> Option<IpAddr> {
        self.socket(index).map(|socket| socket.local.ip())
    }

    /// The receive buffer the kernel granted, in bytes of its accounting (a datagram counts more
    /// than its length): what may be in flight to this address before packets are lost.
    pub fn receive_buffer(&self, index: AddrIndex) -> Option<usize> {
        let socket = self.socket(index)?;
        let bytes = sys::get_option(&socket.fd, libc::SOL_SOCKET, libc::SO_RCVBUF).ok()?;
        usize::try_from(bytes).ok()
    }

    /// Every descriptor to wait on for input, level-triggered. The set changes with addresses only.
    pub fn for_each_fd(&self, f: &mut dyn FnMut(FdKind, BorrowedFd<'_>)) {
        let sockets = self.sockets();
        for socket in sockets.addresses.iter().flatten() {
            if let Some(fd) = socket.fd.borrow() {
                f(FdKind::Udp(socket.index), fd);
            }
        }
        if let Some(fd) = self.incoming.any.borrow() {
            f(FdKind::HandOver, fd);
        }
    }

    /// Gives packets to another process of this user on this host directly, without the network:
    /// for transports that have no flow control, which a burst over UDP would lose. `packets` was
    /// filled with [`add_packet`](crate::add_packet); `route` says from and to which address they
    /// go.
    pub fn deliver(&self, slot: Slot, route: &Route, packets: &[u8]) -> Delivery {
        let sockets = self.sockets();
        let Some(from) = sockets.get(route.local) else { return Delivery::NoOwner };
        let envelope = Envelope {
            src: SocketAddr::new(from.local.ip(), self.config.port),
            dst: route.dst.ip(),
            traffic_class: route.traffic_class,
            hop_limit: if route.hop_limit == 0 { 64 } else { route.hop_limit },
        };
        let header = message::packets_header(&envelope, true);
        let began = self.capture.as_ref().map_or(0, |_| adverb_trace::now());
        match self.tell(slot, &[&header, packets], &[]) {
            Ok(_) => {
                add(&self.counters.delivered, message::packets(packets).count() as u64);
                self.record_delivered(&envelope, packets, began);
                Delivery::Done
            }
            Err(Untold::Full) => Delivery::Full,
            Err(_) => Delivery::NoOwner,
        }
    }

    /// Counts packets that [`UdpLink::deliver`] found no room for and that are dropped.
    pub fn gave_up(&self, packets: &[u8]) {
        add(&self.counters.deliver_drop_deaf, message::packets(packets).count() as u64);
    }

    /// Only now is it known that the owner took them; its answer may be recorded before.
    fn record_delivered(&self, envelope: &Envelope, packets: &[u8], began: u64) {
        let Some(capture) = &self.capture else { return };
        let flow = Flow {
            src: envelope.src,
            dst: SocketAddr::new(envelope.dst, self.config.port),
            traffic_class: envelope.traffic_class,
            hop_limit: envelope.hop_limit,
        };
        message::packets(packets).flatten().for_each(|packet| capture.sent_directly(&flow, packet, began));
        capture.flush();
    }

    /// Sends packets (each behind its length) to the owner of the slot.
    pub(crate) fn hand_on_message(&self, slot: Slot, envelope: &Envelope, packets: &[u8]) -> bool {
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
                _ => {
                    add(&self.counters.rx_drop_no_owner, count);
                    return false;
                }
            }
        }
    }

    /// Has the program closed a descriptor of the link's? Under the number may be one of its own by
    /// now.
    #[must_use]
    pub fn has_lost_a_descriptor(&self) -> bool {
        self.fds.has_lost_one()
    }

    /// Closes every descriptor with close(2) and nothing else, so that the child of a fork can call
    /// it from an `atfork` handler. The link is of no use afterwards; dropping it is allowed and
    /// does nothing to the parent.
    pub fn close_after_fork(&self) {
        self.fds.close_all();
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> LinkStats {
        let mut stats = self.counters.snapshot();
        (stats.network_errors, stats.socket_errors) = (self.errors.network(), self.errors.failed());
        stats.rx_kernel_drops =
            self.sockets().addresses.iter().flatten().map(|socket| sys::kernel_drops(&socket.fd)).sum();
        stats
    }
}

impl Drop for UdpLink {
    fn drop(&mut self) {
        let count = self.sockets().addresses.len();
        (0..count).for_each(|index| self.remove_address(AddrIndex(index as u16)));
    }
}

impl std::fmt::Debug for UdpLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpLink").field("port", &self.config.port).field("slots", &self.slots()).finish()
    }
}
