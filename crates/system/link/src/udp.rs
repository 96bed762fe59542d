//! The link itself: its sockets.
//!
//! What its fields are made of lies in files that know nothing of it: [`crate::packet`],
//! [`crate::address`], [`crate::admit`] and others. Those that know it add methods: to receive, to
//! judge sources, to steer.

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
use crate::packet::{Proof, RxPacket};
use crate::pending::Pending;
use crate::stats::{Counters, LinkStats};
use crate::types::{AddrIndex, Config, FdKind, Route};

/// The sockets at one moment; replaced as a whole when one is added or removed.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    pub(crate) addresses: Vec<Option<Arc<AddressSocket>>>,
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

/// Carries the packets of one process: a UDP socket for each local address. Every method takes
/// `&self` and may be called from any thread.
pub struct UdpLink {
    pub(crate) config: Config,
    /// Whose packets these are, and who gets those of other processes.
    pub(crate) local: Arc<Local>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) tap: Tap,
    pub(crate) own_addresses: OwnAddresses,
    everywhere: Everywhere,
    pub(crate) sockets: RwLock<Arc<Sockets>>,
    pub(crate) pending: Pending,
    /// Index of the address that was busy last.
    pub(crate) hot: AtomicUsize,
    /// Calls of `recv` for all sockets.
    pub(crate) calls: AtomicU32,
    /// Some address wants its steering measured.
    pub(crate) due: AtomicBool,
    /// [`Local::claimed`] when steering was last looked at.
    pub(crate) steered: AtomicUsize,
    /// It was said that another user holds the name that measuring is done in turns by.
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

    /// The process whose packets these are.
    pub fn local(&self) -> &Arc<Local> {
        &self.local
    }

    /// Faults on request and the capture.
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// The UDP port, source and destination.
    pub fn port(&self) -> u16 {
        self.config.port
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
            self.everywhere.hold(self.local.descriptors(), ip, &self.config)?;
            let socket =
                Arc::new(AddressSocket::open(self.local.descriptors(), index, ip, scope_id, &self.config)?);
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
                let keep = &mut |packet: RxPacket<'_>| self.loop_back(&packet);
                self.recv_address(&self.sockets(), socket, &mut buffers, 256, keep);
            });
        }
        Ok(socket.index)
    }

    /// Puts another socket into the place of an address.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn replace_socket(&self, index: AddrIndex, socket: AddressSocket) {
        let mut sockets = self.sockets.write();
        let mut next = Sockets::clone(&sockets);
        next.addresses[index.get()] = Some(Arc::new(socket));
        *sockets = Arc::new(next);
    }

    /// Gives a packet to whoever receives here next, as if it had come.
    pub fn loop_back(&self, packet: &RxPacket<'_>) {
        self.pending.keep(packet, &self.counters);
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
    /// [`OsError::OutOfMemory`](adverb_os::OsError::OutOfMemory) and what else opening a socket may
    /// meet.
    pub fn join_group(&self, group: IpAddr, interface: u32) -> Result<AddrIndex, LinkError> {
        self.everywhere.hold(self.local.descriptors(), group, &self.config)?;
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
        let socket = AddressSocket::join(self.local.descriptors(), index, group, interface, &self.config)?;
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
        if let Some(fd) = self.local.fd() {
            f(FdKind::HandOver, fd);
        }
    }

    /// Gives packets to another process of this user on this host: see [`Local::deliver`]. `route`
    /// says from and to which address they go.
    pub fn deliver(&self, slot: Slot, route: &Route, packets: &[u8]) -> Delivery {
        let Some(from) = self.socket(route.local) else { return Delivery::NoOwner };
        let envelope = Envelope {
            src: SocketAddr::new(from.local.ip(), self.config.port),
            dst: route.dst.ip(),
            traffic_class: route.traffic_class,
            hop_limit: if route.hop_limit == 0 { 64 } else { route.hop_limit },
        };
        let began = self.tap.capture.as_ref().map_or(0, |_| adverb_trace::now());
        let delivery = self.local.deliver(slot, &envelope, packets);
        if delivery == Delivery::Done {
            self.tap.record_delivered(&envelope, packets, began);
        }
        delivery
    }

    /// The source of what leaves by a route.
    pub fn source_of(&self, local: AddrIndex) -> Option<SocketAddr> {
        self.socket(local).map(|socket| socket.local)
    }

    /// A packet from this process to one of this host.
    pub fn packet_by<'a>(&self, route: &Route, bytes: &'a [u8]) -> Option<RxPacket<'a>> {
        let src = self.source_of(route.local)?;
        Some(RxPacket {
            src,
            dst: route.dst.ip(),
            local: None,
            traffic_class: route.traffic_class,
            hop_limit: if route.hop_limit == 0 { 64 } else { route.hop_limit },
            proof: Proof::Process,
            bytes,
        })
    }

    /// See [`Local::follow_user`]. Sockets of addresses are the old user's: once there is one,
    /// nothing is followed.
    ///
    /// # Errors
    /// As [`Local::follow_user`].
    pub fn follow_user(&self) -> Result<(), LocalError> {
        // Held, so that no address is added meanwhile.
        let sockets = self.sockets.write();
        if sockets.addresses.is_empty() { self.local.follow_user() } else { Ok(()) }
    }

    /// A snapshot of the counters.
    pub fn stats(&self) -> LinkStats {
        let mut stats = self.counters.snapshot();
        stats.local = self.local.stats();
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
        f.debug_struct("UdpLink")
            .field("port", &self.config.port)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}
