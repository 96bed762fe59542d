//! The link of a node: the sockets of UDP port 4791, or a network carried by a simulator.
//!
//! The rest of the node does not know which of the two it has. Some functions need sockets:
//! services, frames, groups and handshake messages. A simulated wire answers them as absent.
use adverb_link::{
    AddrIndex, LinkError, LinkStats, Route, RxBuffers, RxFrom, RxPacket, Sink, SourcePort, TxBatch,
    UdpLink,
};
use adverb_local::{
    ConnectionId, Delivery, FramePort, HandshakeMessage, Local, LocalError, LocalPacket, RawFrame,
    ReceivedHandshake, ServiceClaim, ServiceIndex, Slot, UserChanged,
};
use adverb_os::OsError;
use nix::errno::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The link of a node.
#[allow(
    clippy::large_enum_variant,
    reason = "one a node, and the large one is read for each packet"
)]
pub enum Wire {
    /// Sockets.
    Udp {
        /// UDP port 4791.
        link: UdpLink,
        /// This process among the processes of its user on this host.
        local: Arc<Local>,
    },
    /// A network carried by a simulator. Only nodes of the feature `sim` have it.
    Simulated(Box<dyn SimulatedWire>),
}

/// A network carried by a simulator: one process on a host with one address.
pub trait SimulatedWire: Send + Sync {
    /// Is `ip` the address of this host?
    fn is_own_address(&self, ip: IpAddr) -> bool;
    /// The slot of this process, the upper bits of its queue pair numbers.
    fn slot(&self) -> Slot;
    /// Sends a packet, from the BTH to the pad. The network may lose the packet.
    fn send(&self, route: &Route, packet: &[u8]);
    /// Gives at most about `budget` packets to `sink`, in the order of their arrival, in runs as a
    /// kernel joins them. Returns their number.
    fn receive(&self, budget: usize, sink: Sink<'_>) -> usize;
    /// Gives packets to another process of the host, like [`UdpLink::deliver`]. Each packet follows
    /// its length, two bytes in little-endian order.
    fn deliver(&self, slot: Slot, route: &Route, packets: &[u8]) -> Delivery;
    /// Called when the background thread asks whether the wire needs upkeep. The thread holds no
    /// lock. A simulator may run another thread of the program here. One of these calls lies
    /// between the thread's look at its deadlines and the announcement of its sleep.
    fn maintenance_due(&self) -> bool {
        false
    }
}

/// Methods of the sockets, each with its owner and the answer of a simulated wire.
macro_rules! sockets_alone {
    ($($of:ident.$name:ident($($arg:ident: $ty:ty),*) -> $ret:ty = $none:expr;)*) => {
        impl Wire {
            $(
                pub(crate) fn $name(&self, $($arg: $ty),*) -> $ret {
                    match self {
                        Wire::Udp { $of, .. } => $of.$name($($arg),*),
                        Wire::Simulated(_) => $none,
                    }
                }
            )*
        }
    };
}

sockets_alone! {
    link.port() -> u16 = adverb_wire::ROCE_PORT;
    link.group_address(group: IpAddr, interface: u32) -> SocketAddr = { _ = interface; SocketAddr::new(group, adverb_wire::ROCE_PORT) };
    link.source_port(_local: AddrIndex, _dst: IpAddr, _preferred: u16) -> SourcePort = SourcePort::default();
    link.multicast_from(_local: AddrIndex, _interface: u32) -> () = ();
    link.join_group(_group: IpAddr, _interface: u32) -> Result<AddrIndex, LinkError> = Err(none("join a group").into());
    link.leave_group(_index: AddrIndex) -> () = ();
    link.loop_back(_packet: &RxPacket<'_>) -> () = ();
    link.follow_user() -> Result<(), LocalError> = Ok(());
    link.maintain(receive: &mut dyn FnMut()) -> () = _ = receive;
    local.changed_user() -> Option<UserChanged> = None;
    local.changed_owner(_slot: Slot) -> Option<UserChanged> = None;
    local.send_handshake(_slot: Slot, _message: &HandshakeMessage, _fds: &[BorrowedFd<'_>]) -> io::Result<ConnectionId> = Err(Errno::ECONNREFUSED.into());
    local.handshakes() -> Vec<ReceivedHandshake> = Vec::new();
    local.ended() -> Vec<ConnectionId> = Vec::new();
    local.is_held_by(_slot: Slot, _pid: i32) -> bool = false;
    local.claim_slot() -> Result<Slot, LocalError> = Err(none("claim a second slot").into());
    local.tell_owner(_slot: Slot, _packet: &LocalPacket<'_>) -> Delivery = Delivery::NoOwner;
    local.tell_service(_service: u64, _at: IpAddr, _packet: &LocalPacket<'_>) -> Delivery = Delivery::NoOwner;
    local.tell_everybody(_packet: &LocalPacket<'_>) -> () = ();
    local.gave_up(_packets: &[u8]) -> () = ();
    local.claim_service(_service: u64, _at: Option<IpAddr>, _shared: bool) -> Result<ServiceClaim, LocalError> = Err(none("claim a service").into());
    local.listen_for(_claim: &ServiceClaim) -> Result<ServiceIndex, LocalError> = Err(none("listen for a service").into());
    local.stop_listening(_index: ServiceIndex) -> () = ();
    local.watch_owner(_slot: Slot) -> Delivery = Delivery::NoOwner;
    local.open_frames(_interface: u32) -> Result<FramePort, LocalError> = Err(none("open a packet socket").into());
    local.share_frames(_interface: u32) -> Result<FramePort, LocalError> = Err(none("share frames").into());
    local.close_frames(_port: &FramePort) -> () = ();
    local.send_frame(_port: &FramePort, _frame: &[u8]) -> io::Result<()> = Err(Errno::ENETDOWN.into());
    local.frame_takers(_interface: u32) -> Vec<Slot> = Vec::new();
    local.tell_frame(_slot: Slot, _interface: u32, _frame: &[u8]) -> () = ();
    local.keep_frame(_frame: RawFrame) -> () = ();
    local.frames() -> VecDeque<RawFrame> = VecDeque::new();
}

fn none(doing: &'static str) -> OsError {
    OsError::Os { doing, source: Errno::EOPNOTSUPP.into() }
}

impl Wire {
    /// The UDP link, which only a node with sockets has.
    #[must_use]
    pub fn udp(&self) -> Option<&UdpLink> {
        match self {
            Wire::Udp { link, .. } => Some(link),
            Wire::Simulated(_) => None,
        }
    }

    /// This process among the processes of its user. Only a node with sockets has this value.
    #[must_use]
    pub fn local(&self) -> Option<&Arc<Local>> {
        match self {
            Wire::Udp { local, .. } => Some(local),
            Wire::Simulated(_) => None,
        }
    }

    /// The counters of the link.
    #[must_use]
    pub fn stats(&self) -> LinkStats {
        self.udp().map(UdpLink::stats).unwrap_or_default()
    }

    /// See [`UdpLink::packet_by`].
    pub(crate) fn packet_by<'a>(&self, route: &Route, bytes: &'a [u8]) -> Option<RxPacket<'a>> {
        self.udp()?.packet_by(route, bytes)
    }

    /// The machine's addresses have changed, so the next look asks the kernel again.
    pub(crate) fn own_addresses_changed(&self) {
        if let Some(link) = self.udp() {
            link.own_addresses().changed();
        }
    }

    /// See [`adverb_link::Tap::add_qp`].
    pub(crate) fn add_qp(&self, qpn: u32, nth: u32) {
        if let Some(link) = self.udp() {
            link.tap().add_qp(qpn, nth);
        }
    }

    #[inline]
    pub(crate) fn is_own_address(&self, ip: IpAddr) -> bool {
        match self {
            Wire::Udp { link, .. } => link.own_addresses().contains(ip),
            Wire::Simulated(wire) => wire.is_own_address(ip),
        }
    }

    #[inline]
    pub(crate) fn owns(&self, slot: Slot) -> bool {
        match self {
            Wire::Udp { local, .. } => local.owns(slot),
            Wire::Simulated(wire) => wire.slot() == slot,
        }
    }

    pub(crate) fn slots(&self) -> Vec<Slot> {
        match self {
            Wire::Udp { local, .. } => local.slots(),
            Wire::Simulated(wire) => vec![wire.slot()],
        }
    }

    pub(crate) fn add_address(&self, ip: IpAddr, scope_id: u32) -> Result<AddrIndex, LinkError> {
        match self {
            Wire::Udp { link, .. } => link.add_address(ip, scope_id),
            Wire::Simulated(wire) if wire.is_own_address(ip) => Ok(AddrIndex::default()),
            Wire::Simulated(_) => Err(none("open an address of another host").into()),
        }
    }

    #[inline]
    pub(crate) fn recv(
        &self,
        from: RxFrom,
        buffers: &mut RxBuffers,
        budget: usize,
        sink: Sink<'_>,
    ) -> usize {
        match self {
            Wire::Udp { link, .. } => link.recv(from, buffers, budget, sink),
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
            Wire::Udp { link, .. } => batch.push(link, route, headers, payload_len, pad, fill),
            Wire::Simulated(wire) => {
                let mut packet = headers.to_vec();
                packet.resize(headers.len() + payload_len + usize::from(pad), 0);
                if fill(&mut packet[headers.len()..][..payload_len]) {
                    wire.send(route, &packet);
                }
            }
        }
    }

    /// Sends the staged packets: see [`TxBatch::try_flush`]. A simulated wire stages nothing.
    #[inline]
    pub(crate) fn flush(&self, batch: &mut TxBatch) -> io::Result<()> {
        match self {
            Wire::Udp { link, .. } => batch.try_flush(link),
            Wire::Simulated(_) => Ok(()),
        }
    }

    pub(crate) fn deliver(&self, slot: Slot, route: &Route, packets: &[u8]) -> Delivery {
        match self {
            Wire::Udp { link, .. } => link.deliver(slot, route, packets),
            Wire::Simulated(wire) => wire.deliver(slot, route, packets),
        }
    }

    pub(crate) fn maintenance_due(&self) -> bool {
        match self {
            Wire::Udp { link, .. } => link.maintenance_due(),
            Wire::Simulated(wire) => wire.maintenance_due(),
        }
    }
}
