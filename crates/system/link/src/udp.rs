//! The link itself: its sockets.
//!
//! The types of the fields are in files without a dependency on this file: [`crate::packet`],
//! [`crate::address`], [`crate::admit`] and others. Other files add methods: to receive, to check
//! sources, to steer.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};

use adverb_local::{Delivery, Envelope, Local, LocalError, Slot};
use adverb_os::OwnAddresses;
use adverb_os::sys;
use adverb_sync::RwLock;

use crate::address::{self, AddressSocket};
use crate::admit::Tap;
use crate::buffers::RxBuffers;
use crate::error::LinkError;
use crate::everywhere::Everywhere;
use crate::packet::{Proof, RxPacket, each};
use crate::pending::Pending;
use crate::stats::{Counters, LinkStats};
use crate::types::{AddrIndex, Config, Route, SourcePort};

/// The sockets at one moment. Adding or removing a socket replaces the whole value.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    pub(crate) addresses: Vec<Option<Arc<AddressSocket>>>,
    /// Free indexes of groups that were left.
    free: Vec<AddrIndex>,
}

impl Sockets {
    pub(crate) fn get(&self, index: AddrIndex) -> Option<&Arc<AddressSocket>> {
        self.addresses.get(index.get())?.as_ref()
    }

    /// The sockets at an address.
    pub(crate) fn at(&self, ip: IpAddr) -> impl Iterator<Item = &Arc<AddressSocket>> {
        self.addresses.iter().flatten().filter(move |socket| socket.local.ip() == ip)
    }

    /// The index for the next socket.
    fn next(&self) -> Result<AddrIndex, LinkError> {
        u16::try_from(self.addresses.len())
            .map(AddrIndex)
            .map_err(|_| LinkError::TooManySockets { limit: usize::from(u16::MAX) })
    }
}

/// Carries the packets of one process, with a UDP socket for each local address. Every method takes
/// `&self` and may be called from any thread.
pub struct UdpLink {
    pub(crate) config: Config,
    /// The process of this link, and its connections to other processes.
    pub(crate) local: Arc<Local>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) tap: Tap,
    pub(crate) own_addresses: OwnAddresses,
    everywhere: Everywhere,
    pub(crate) sockets: RwLock<Arc<Sockets>>,
    pub(crate) pending: Pending,
    /// The index of the most recently busy address.
    pub(crate) hot: AtomicUsize,
    /// The number of `recv` calls for all sockets.
    pub(crate) calls: AtomicU32,
    /// The steering of some address should be measured.
    pub(crate) due: AtomicBool,
    /// [`Local::claimed`] at the last check of the steering.
    pub(crate) steered: AtomicUsize,
    /// The log has named another user holding the steering lock's name.
    pub(crate) steer_warned: AtomicBool,
}

impl UdpLink {
    /// A link without addresses, for the slots of a process.
    pub fn new(config: Config, local: Arc<Local>) -> Self {
        let counters = Arc::new(Counters::default());
        UdpLink {
            tap: Tap::new(&config, counters.clone()),
            counters,
            own_addresses: OwnAddresses::default(),
            everywhere: Everywhere::default(),
            sockets: RwLock::default(),
            pending: Pending::default(),
            hot: AtomicUsize::new(0),
            calls: AtomicU32::new(0),
            due: AtomicBool::new(false),
            steered: AtomicUsize::new(local.claimed()),
            steer_warned: AtomicBool::new(false),
            local,
            config,
        }
    }

    /// The process of this link.
    pub fn local(&self) -> &Arc<Local> {
        &self.local
    }

    /// Faults on request, and the capture.
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// The UDP port: the destination of every packet, and the source of packets to this host.
    pub fn port(&self) -> u16 {
        self.config.port
    }

    pub(crate) fn sockets(&self) -> Arc<Sockets> {
        self.sockets.read().clone()
    }

    pub(crate) fn socket(&self, index: AddrIndex) -> Option<Arc<AddressSocket>> {
        self.sockets.read().get(index).cloned()
    }

    /// Opens the socket of a local address; returns the existing index if the socket is open
    /// already. `scope_id` is the interface index of a link-local IPv6 address, else 0.
    ///
    /// If other processes share the address, this call measures the steering. This takes some
    /// milliseconds, and about 200 at most if a process does not answer.
    ///
    /// # Errors
    /// [`LinkError::PortTaken`], [`LinkError::NoSuchAddress`], and other errors of opening a
    /// socket.
    pub fn add_address(&self, ip: IpAddr, scope_id: u32) -> Result<AddrIndex, LinkError> {
        let local = address::socket_addr(ip, scope_id, self.config.port);
        let socket = {
            let mut sockets = self.sockets.write();
            if let Some(socket) = sockets.addresses.iter().flatten().find(|s| s.local == local) {
                return Ok(socket.index);
            }
            let index = sockets.next()?;
            self.everywhere.hold(self.local.descriptors(), ip, &self.config)?;
            let socket = Arc::new(AddressSocket::open(
                self.local.descriptors(),
                index,
                ip,
                scope_id,
                &self.config,
            )?);
            Arc::make_mut(&mut sockets).addresses.push(Some(socket.clone()));
            socket
        };
        self.vouch(&socket);
        if self.config.steer {
            // There may be no receiver yet: keep arriving packets during the measurement.
            let mut buffers = RxBuffers::new(1);
            self.resteer(&socket, &mut |socket| {
                let keep = &mut each(|packet| self.loop_back(&packet));
                self.recv_address(socket, &mut buffers, 256, keep);
            });
        }
        Ok(socket.index)
    }

    /// Replaces the socket of an address.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn replace_socket(&self, index: AddrIndex, socket: AddressSocket) {
        let mut sockets = self.sockets.write();
        Arc::make_mut(&mut sockets).addresses[index.get()] = Some(Arc::new(socket));
    }

    /// Gives a packet to the next receiver on this link, as if it had arrived.
    pub fn loop_back(&self, packet: &RxPacket<'_>) {
        self.pending.keep(packet, &self.counters);
    }

    /// Closes the socket of an address. Packets to this address get no answer any more.
    pub fn remove_address(&self, index: AddrIndex) {
        let removed = {
            let mut sockets = self.sockets.write();
            let removed =
                Arc::make_mut(&mut sockets).addresses.get_mut(index.get()).and_then(Option::take);
            self.own_addresses.renew();
            removed
        };
        if let Some(socket) = removed {
            // A concurrent receiver in another thread may hold the socket, and keep it open, a
            // moment longer.
            self.refresh_others(socket);
        }
    }

    /// Joins a multicast group on an interface. The group's packets have the group as their
    /// destination.
    ///
    /// # Errors
    /// [`OsError::OutOfMemory`](adverb_os::OsError::OutOfMemory), and other errors of opening a
    /// socket.
    pub fn join_group(&self, group: IpAddr, interface: u32) -> Result<AddrIndex, LinkError> {
        self.everywhere.hold(self.local.descriptors(), group, &self.config)?;
        let mut sockets = self.sockets.write();
        let index = match sockets.free.last() {
            Some(index) => *index,
            None => sockets.next()?,
        };
        let socket =
            AddressSocket::join(self.local.descriptors(), index, group, interface, &self.config)?;
        let sockets = Arc::make_mut(&mut sockets);
        if sockets.free.pop().is_none() {
            sockets.addresses.push(None);
        }
        sockets.addresses[index.get()] = Some(Arc::new(socket));
        Ok(index)
    }

    /// Leaves a multicast group. The index may be reused for another group.
    pub fn leave_group(&self, index: AddrIndex) {
        let mut sockets = self.sockets.write();
        if sockets.get(index).is_some_and(|socket| socket.is_group()) {
            let sockets = Arc::make_mut(&mut sockets);
            sockets.addresses[index.get()] = None;
            sockets.free.push(index);
        }
    }

    /// The receive buffer granted by the kernel, in bytes of its accounting. A datagram counts more
    /// than its length. More bytes than this in flight to the address may be lost.
    pub fn receive_buffer(&self, index: AddrIndex) -> Option<usize> {
        let socket = self.socket(index)?;
        let bytes = sys::get_option(&socket.fd, libc::SOL_SOCKET, libc::SO_RCVBUF).ok()?;
        usize::try_from(bytes).ok()
    }

    /// Calls `f` with every descriptor to wait on for input, level-triggered, and its address.
    /// `None`: the descriptor is for packets from other processes of this user. The set only
    /// changes with the addresses.
    pub fn for_each_fd(&self, f: &mut dyn FnMut(Option<AddrIndex>, BorrowedFd<'_>)) {
        let sockets = self.sockets();
        for socket in sockets.addresses.iter().flatten() {
            if let Some(fd) = socket.fd.borrow() {
                f(Some(socket.index), fd);
            }
        }
        if let Some(fd) = self.local.fd() {
            f(None, fd);
        }
    }

    /// Gives packets to another process of this user on this host: see [`Local::deliver`]. `route`
    /// has the source and destination addresses.
    pub fn deliver(&self, slot: Slot, route: &Route, packets: &[u8]) -> Delivery {
        let Some(src) = self.source_of(route.local) else { return Delivery::NoOwner };
        let envelope =
            Envelope { src: SocketAddr::new(src.ip(), self.config.port), ..envelope(src, route) };
        let began = self.tap.capture.as_ref().map_or(0, |_| adverb_trace::now());
        let delivery = self.local.deliver(slot, &envelope, packets);
        if delivery == Delivery::Done {
            self.tap.record_delivered(&envelope, packets, began);
        }
        delivery
    }

    /// The source port of a queue pair's packets to `dst`. `preferred` is the port of a NIC for
    /// this queue pair: queue pairs with one preferred port have one source port. The link's own
    /// port if `dst` may be an address of this host, which may change with
    /// [`OwnAddresses::version`](adverb_os::OwnAddresses::version).
    pub fn source_port(&self, local: AddrIndex, dst: IpAddr, preferred: u16) -> SourcePort {
        if dst.is_multicast() || !self.own_addresses.excludes(dst) {
            return SourcePort::default();
        }
        let Some(socket) = self.socket(local) else { return SourcePort::default() };
        socket.sources.choose(self.local.descriptors(), &socket.local, preferred, &self.counters)
    }

    /// The source address of packets that do not leave this host.
    pub fn source_of(&self, local: AddrIndex) -> Option<SocketAddr> {
        self.socket(local).map(|socket| socket.local)
    }

    /// A packet from this process to a process of this host.
    pub fn packet_by<'a>(&self, route: &Route, bytes: &'a [u8]) -> Option<RxPacket<'a>> {
        let envelope = envelope(self.source_of(route.local)?, route);
        Some(RxPacket::of(&envelope, None, Proof::Process, bytes))
    }

    /// See [`Local::follow_user`]. Does nothing once there is an address, because the address's
    /// socket belongs to the old user.
    ///
    /// # Errors
    /// As [`Local::follow_user`].
    pub fn follow_user(&self) -> Result<(), LocalError> {
        // Hold the lock, so that no address is added meanwhile.
        let sockets = self.sockets.write();
        if sockets.addresses.is_empty() { self.local.follow_user() } else { Ok(()) }
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> LinkStats {
        let mut stats = self.counters.snapshot();
        stats.local = self.local.stats();
        let sockets = self.sockets();
        let drops = sockets.addresses.iter().flatten().map(|socket| sys::kernel_drops(&socket.fd));
        stats.rx_kernel_drops = drops.sum();
        stats
    }
}

/// The properties of packets that do not leave this host.
fn envelope(src: SocketAddr, route: &Route) -> Envelope {
    Envelope {
        src,
        dst: route.dst.ip(),
        traffic_class: route.traffic_class,
        hop_limit: if route.hop_limit == 0 { 64 } else { route.hop_limit },
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
        f.debug_struct("UdpLink")
            .field("port", &self.config.port)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}
