//! What carries packets away from a node: the sockets of UDP port 4791, or a network that a
//! simulator carries.
//!
//! The rest of the node does not know which of the two it has. What only sockets do (services,
//! frames, groups, greetings) a simulated wire answers with "there is none".
use adverb_link::{
    AddrIndex, ConnectionId, Delivery, FdKind, FramePort, Greeting, Hello, LinkError, LinkStats, RawFrame,
    Route, RxBuffers, RxFrom, RxPacket, ServiceClaim, ServiceIndex, Slot, TxBatch, UdpLink, UserChanged,
};
use adverb_os::OsError;
use nix::errno::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What carries packets away from a node.
#[allow(clippy::large_enum_variant, reason = "one a node, and the large one is read for each packet")]
pub enum Wire {
    /// UDP sockets.
    Udp(UdpLink),
    /// A network that a simulator carries. Only a node of the feature `sim` has it.
    Simulated(Box<dyn SimulatedWire>),
}

/// A network that a simulator carries: one process on a host with one address.
pub trait SimulatedWire: Send + Sync {
    /// Is it the address of this host?
    fn is_own_address(&self, ip: IpAddr) -> bool;
    /// The slot of this process, the upper bits of its queue pair numbers.
    fn slot(&self) -> Slot;
    /// Sends a packet, from the BTH to the pad. What the network loses is lost.
    fn send(&self, route: &Route, packet: &[u8]);
    /// Hands about `budget` packets at most to `sink`, in the order of their arrival. Answers how
    /// many.
    fn receive(&self, budget: usize, sink: &mut dyn FnMut(RxPacket<'_>)) -> usize;
    /// Gives packets to another process of the host, as [`UdpLink::deliver`] does. Each packet
    /// stands behind its length, two bytes in little-endian order.
    fn deliver(&self, slot: Slot, route: &Route, packets: &[u8]) -> Delivery;
    /// The background thread asks whether the wire wants its upkeep. It holds no lock. A simulator
    /// may let another thread of the program run here: one of these moments lies between the
    /// thread's look at its deadlines and the announcement of its sleep.
    fn maintenance_due(&self) -> bool {
        false
    }
}

/// Methods of the sockets, each with the answer of a simulated wire.
macro_rules! sockets_alone {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $none:expr;)*) => {
        impl Wire {
            $(
                pub(crate) fn $name(&self, $($arg: $ty),*) -> $ret {
                    match self {
                        Wire::Udp(link) => link.$name($($arg),*),
                        Wire::Simulated(_) => $none,
                    }
                }
            )*
        }
    };
}

sockets_alone! {
    port() -> u16 = adverb_wire::ROCE_PORT;
    group_address(group: IpAddr, interface: u32) -> SocketAddr = { _ = interface; SocketAddr::new(group, adverb_wire::ROCE_PORT) };
    multicast_from(_local: AddrIndex, _interface: u32) -> () = ();
    join_group(_group: IpAddr, _interface: u32) -> Result<AddrIndex, LinkError> = Err(none("join a group"));
    leave_group(_index: AddrIndex) -> () = ();
    loop_back(_packet: &RxPacket<'_>) -> () = ();
    is_tentative_address(_ip: IpAddr) -> bool = false;
    own_addresses_changed() -> () = ();
    follow_user() -> Result<(), LinkError> = Ok(());
    changed_user() -> Option<UserChanged> = None;
    changed_owner(_slot: Slot) -> Option<UserChanged> = None;
    greet(_slot: Slot, _hello: &Hello, _fds: &[BorrowedFd<'_>]) -> io::Result<ConnectionId> = Err(Errno::ECONNREFUSED.into());
    greetings() -> Vec<Greeting> = Vec::new();
    ended() -> Vec<ConnectionId> = Vec::new();
    is_held_by(_slot: Slot, _pid: i32) -> bool = false;
    has_lost_a_descriptor() -> bool = false;
    close_after_fork() -> () = ();
    socket_failed(_doing: &'static str, _error: &io::Error) -> () = ();
    add_qp(_qpn: u32, _nth: u32) -> () = ();
    remove_qp(_qpn: u32) -> () = ();
    held_for() -> Option<Duration> = None;
    maintain(receive: &mut dyn FnMut()) -> () = _ = receive;
    gave_up(_packets: &[u8]) -> () = ();
    claim_service(_service: u64, _at: Option<IpAddr>, _shared: bool) -> Result<ServiceClaim, LinkError> = Err(none("claim a service"));
    listen_for(_claim: &ServiceClaim) -> Result<ServiceIndex, LinkError> = Err(none("listen for a service"));
    stop_listening(_index: ServiceIndex) -> () = ();
    tell_service(_service: u64, _at: IpAddr, _packet: &RxPacket<'_>) -> Delivery = Delivery::NoOwner;
    tell_owner(_slot: Slot, _packet: &RxPacket<'_>) -> Delivery = Delivery::NoOwner;
    tell_everybody(_packet: &RxPacket<'_>) -> () = ();
    watch_owner(_slot: Slot) -> Delivery = Delivery::NoOwner;
    open_frames(_interface: u32) -> Result<FramePort, LinkError> = Err(none("open a packet socket"));
    share_frames(_interface: u32) -> Result<FramePort, LinkError> = Err(none("share frames"));
    close_frames(_port: &FramePort) -> () = ();
    send_frame(_port: &FramePort, _frame: &[u8]) -> io::Result<()> = Err(Errno::ENETDOWN.into());
    frame_takers(_interface: u32) -> Vec<Slot> = Vec::new();
    tell_frame(_slot: Slot, _interface: u32, _frame: &[u8]) -> () = ();
    keep_frame(_frame: RawFrame) -> () = ();
    frames() -> VecDeque<RawFrame> = VecDeque::new();
}

fn none(doing: &'static str) -> LinkError {
    OsError::Os { doing, source: Errno::EOPNOTSUPP.into() }.into()
}

impl Wire {
    /// The sockets, for what only they have.
    #[must_use]
    pub fn udp(&self) -> Option<&UdpLink> {
        match self {
            Wire::Udp(link) => Some(link),
            Wire::Simulated(_) => None,
        }
    }

    /// What was counted.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.udp().map(UdpLink::stats).unwrap_or_default()
    }

    /// See [`UdpLink::for_each_fd`].
    pub(crate) fn for_each_fd(&self, each: &mut dyn FnMut(FdKind, BorrowedFd<'_>)) {
        if let Some(link) = self.udp() {
            link.for_each_fd(each);
        }
    }

    /// See [`UdpLink::packet_by`].
    pub(crate) fn packet_by<'a>(&self, route: &Route, bytes: &'a [u8]) -> Option<RxPacket<'a>> {
        self.udp()?.packet_by(route, bytes)
    }

    #[inline]
    pub(crate) fn is_own_address(&self, ip: IpAddr) -> bool {
        match self {
            Wire::Udp(link) => link.is_own_address(ip),
            Wire::Simulated(wire) => wire.is_own_address(ip),
        }
    }

    #[inline]
    pub(crate) fn owns(&self, slot: Slot) -> bool {
        match self {
            Wire::Udp(link) => link.owns(slot),
            Wire::Simulated(wire) => wire.slot() == slot,
        }
    }

    pub(crate) fn slots(&self) -> Vec<Slot> {
        match self {
            Wire::Udp(link) => link.slots(),
            Wire::Simulated(wire) => vec![wire.slot()],
        }
    }

    pub(crate) fn claim_slot(&self) -> Result<Slot, LinkError> {
        match self {
            Wire::Udp(link) => link.claim_slot(),
            Wire::Simulated(_) => Err(none("claim a second slot")),
        }
    }

    pub(crate) fn add_address(&self, ip: IpAddr, scope_id: u32) -> Result<AddrIndex, LinkError> {
        match self {
            Wire::Udp(link) => link.add_address(ip, scope_id),
            Wire::Simulated(wire) if wire.is_own_address(ip) => Ok(AddrIndex::default()),
            Wire::Simulated(_) => Err(none("open an address of another host")),
        }
    }

    #[inline]
    pub(crate) fn recv(
        &self,
        from: RxFrom,
        buffers: &mut RxBuffers,
        budget: usize,
        sink: &mut dyn FnMut(RxPacket<'_>),
    ) -> usize {
        match self {
            Wire::Udp(link) => link.recv(from, buffers, budget, sink),
            Wire::Simulated(wire) => wire.receive(budget, sink),
        }
    }

    /// Stages a packet: see [`TxBatch::push`].
    #[allow(clippy::too_many_arguments, reason = "those of `TxBatch::push`")]
    #[inline]
    pub(crate) fn push(
        &self,
        batch: &mut TxBatch,
        route: &Route,
        headers: &[u8],
        payload_len: usize,
        pad: u8,
        fill: impl FnOnce(&mut [u8]) -> bool,
    ) {
        match self {
            Wire::Udp(link) => batch.push(link, route, headers, payload_len, pad, fill),
            Wire::Simulated(wire) => {
                let mut packet = headers.to_vec();
                packet.resize(headers.len() + payload_len + usize::from(pad), 0);
                if fill(&mut packet[headers.len()..][..payload_len]) {
                    wire.send(route, &packet);
                }
            }
        }
    }

    /// Sends what is staged: see [`TxBatch::try_flush`]. A simulated wire stages nothing.
    #[inline]
    pub(crate) fn flush(&self, batch: &mut TxBatch) -> io::Result<()> {
        match self {
            Wire::Udp(link) => batch.try_flush(link),
            Wire::Simulated(_) => Ok(()),
        }
    }

    pub(crate) fn deliver(&self, slot: Slot, route: &Route, packets: &[u8]) -> Delivery {
        match self {
            Wire::Udp(link) => link.deliver(slot, route, packets),
            Wire::Simulated(wire) => wire.deliver(slot, route, packets),
        }
    }

    pub(crate) fn maintenance_due(&self) -> bool {
        match self {
            Wire::Udp(link) => link.maintenance_due(),
            Wire::Simulated(wire) => wire.maintenance_due(),
        }
    }
}
