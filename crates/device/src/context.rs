//! An open device.
use crate::cq::Cq;
use crate::device::{DEFAULT_PKEY, Device, PKEYS, PORT};
use crate::error::Error;
use crate::event_queue::EventQueue;
use crate::faults::Call;
use crate::node::Node;
use crate::ports::{Port, PortState};
use crate::qp::Qp;
use crate::srq::Srq;
use adverb_engine::{AddressVector, Gid, Limits, PathMtu};
use nix::errno::Errno;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// An asynchronous event; discriminants of `ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum AsyncEvent {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    PathMig = 6,
    PathMigErr = 7,
    DeviceFatal = 8,
    PortActive = 9,
    PortErr = 10,
    LidChange = 11,
    PkeyChange = 12,
    SmChange = 13,
    SrqErr = 14,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
    ClientReregister = 17,
    GidChange = 18,
}

/// What an asynchronous event is about.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum Element {
    Cq(Arc<Cq>),
    Qp(Arc<Qp>),
    Srq(Arc<Srq>),
    Port(u8),
}

impl Element {
    /// An event about it was handed to the program.
    fn note_read(&self) {
        match self {
            Element::Cq(cq) => cq.async_acks.note_read(),
            Element::Qp(qp) => qp.async_acks.note_read(),
            Element::Srq(srq) => srq.async_acks.note_read(),
            Element::Port(_) => {}
        }
    }
}

/// An address as `ibv_ah_attr` gives it.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)]
pub struct AhAttr {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: bool,
    pub port_num: u8,
}

/// An open device.
#[derive(Debug)]
pub struct Context {
    device: Arc<Device>,
    node: Arc<Node>,
    limits: Limits,
    port: Arc<Port>,
    /// Packets are to come at every address of the port.
    at_every_address: AtomicBool,
    events: EventQueue<(AsyncEvent, Element)>,
    pub(crate) dm_used: AtomicUsize,
}

impl Context {
    pub(crate) fn new(device: &Arc<Device>) -> Result<Arc<Self>, Error> {
        let node = Node::get()?;
        node.fault_call(Call::OpenDevice)?;
        let port = node.ports.open(device.interface(), &device.gids());
        let context = Arc::new(Context {
            device: device.clone(),
            node,
            limits: device.limits(),
            port,
            at_every_address: AtomicBool::new(false),
            events: EventQueue::new()?,
            dm_used: AtomicUsize::new(0),
        });
        context.node.ports.enter(&context);
        // The list of devices may be an old one.
        context.node.look_at_interfaces()?;
        Ok(context)
    }
    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
    /// The process's engine.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }
    /// What the device offers. The port's MTU is that of the time when it was opened; see
    /// [`Context::port_mtu`].
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
    /// The same, with the port's MTU of this moment.
    pub(crate) fn limits_now(&self) -> Limits {
        Limits { port_mtu: self.port_mtu(), ..self.limits }
    }
    /// The largest path MTU whose packets fit the interface now.
    #[must_use]
    pub fn port_mtu(&self) -> PathMtu {
        self.port.path_mtu()
    }
    /// The port as it is now.
    #[must_use]
    pub fn port_state(&self) -> PortState {
        self.port.state()
    }
    /// The GID table as it is now, up to its last entry that is not empty.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.port.state().gids
    }
    pub(crate) fn port(&self) -> &Arc<Port> {
        &self.port
    }
    /// A GID of the port; the zero GID for an empty entry.
    ///
    /// # Errors
    /// EINVAL for another port or an index beyond the table.
    pub fn gid(&self, port: u8, index: usize) -> Result<Gid, Error> {
        self.check_port(port)?;
        if index >= usize::from(self.limits.gids) {
            return Err(Error::invalid(
                format!("GID index is {index}"),
                format!("the table has {}", self.limits.gids),
            ));
        }
        Ok(self.port.gid(index))
    }
    /// The P_Key at an index.
    ///
    /// # Errors
    /// EINVAL for another port or an index beyond the table.
    pub fn pkey(&self, port: u8, index: usize) -> Result<u16, Error> {
        self.check_port(port)?;
        if index >= usize::from(PKEYS) {
            return Err(Error::invalid(format!("P_Key index is {index}"), format!("the table has {PKEYS}")));
        }
        Ok(DEFAULT_PKEY)
    }
    /// EINVAL unless the port exists.
    ///
    /// # Errors
    /// EINVAL.
    pub fn check_port(&self, port: u8) -> Result<(), Error> {
        if port != PORT {
            return Err(Error::invalid(format!("port number is {port}"), "the device has port 1"));
        }
        Ok(())
    }
    /// Resolves an address: checks it and finds the local GID behind its index.
    ///
    /// # Errors
    /// EINVAL naming the field.
    pub fn resolve(&self, attr: &AhAttr) -> Result<AddressVector, Error> {
        self.check_port(attr.port_num)?;
        if !attr.is_global {
            return Err(Error::invalid("is_global is 0", "RoCE addresses need a GRH (a destination GID)"));
        }
        let sgid = self.gid(attr.port_num, usize::from(attr.sgid_index))?;
        if sgid.is_zero() {
            return Err(Error::invalid(
                format!("sgid_index is {}", attr.sgid_index),
                format!(
                    "that GID table entry is empty, the port has {}",
                    self.gids().iter().filter(|gid| !gid.is_zero()).count()
                ),
            ));
        }
        if attr.dgid.is_zero() {
            return Err(Error::invalid("dgid", "the destination GID is zero"));
        }
        let dgid = crate::multicast::toward(&attr.dgid, sgid.ipv4().is_some());
        if sgid.ipv4().is_some() != dgid.ipv4().is_some() {
            return Err(Error::invalid(
                format!("dgid is {dgid}, sgid is {sgid}"),
                "both must be IPv4 or both IPv6",
            ));
        }
        Ok(AddressVector {
            sgid,
            dgid,
            scope_id: self.device.interface().index,
            sgid_index: attr.sgid_index,
            hop_limit: attr.hop_limit,
            traffic_class: attr.traffic_class,
            flow_label: attr.flow_label & 0x000f_ffff,
            sl: attr.sl,
            src_path_bits: attr.src_path_bits,
            static_rate: attr.static_rate,
            is_global: true,
            dlid: attr.dlid,
            port_num: attr.port_num,
        })
    }
    /// Opens port 4791 at every address of the device: a datagram QP receives on all of them.
    pub(crate) fn open_all(&self) -> Result<(), Error> {
        self.at_every_address.store(true, Ordering::Relaxed);
        let mut first = None;
        let mut opened = 0;
        for gid in self.gids().iter().filter(|gid| !gid.is_zero()) {
            match self.open_gid(gid) {
                Ok(()) => opened += 1,
                Err(e) => first = first.or(Some(e)),
            }
        }
        match first {
            Some(e) if opened == 0 => Err(e),
            _ => Ok(()),
        }
    }
    /// Opens port 4791 at one GID.
    pub(crate) fn open_gid(&self, gid: &Gid) -> Result<(), Error> {
        let (ip, scope) = self.address_of(gid);
        self.node.open_address(ip, scope).map(drop)
    }
    /// The address of a GID, and the interface that it needs.
    fn address_of(&self, gid: &Gid) -> (IpAddr, u32) {
        let ip = crate::interfaces::ip_of(gid);
        let local = matches!(ip, IpAddr::V6(a) if crate::interfaces::is_link_local(&a));
        (ip, if local { self.device.interface().index } else { 0 })
    }
    /// The same at addresses that have come since, for datagram queue pairs. One that is not ready
    /// yet is tried again with the next news.
    pub(crate) fn open_what_came(&self) {
        if !self.at_every_address.load(Ordering::Relaxed) {
            return;
        }
        for gid in self.gids().iter().filter(|gid| !gid.is_zero()) {
            let (ip, scope) = self.address_of(gid);
            if let Err(e) = self.node.open_address_quietly(ip, scope) {
                log::info!("{}: {e}", self.device.name());
            }
        }
    }

    /// The descriptor of asynchronous events.
    #[must_use]
    pub fn async_fd(&self) -> RawFd {
        self.events.raw_fd()
    }
    /// The same, borrowed: for polling it beside others, or for its `O_NONBLOCK`.
    #[must_use]
    pub fn async_events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
    /// Waits for an asynchronous event as the descriptor's `O_NONBLOCK` says. It must be
    /// acknowledged with [`Context::ack_async_event`].
    ///
    /// # Errors
    /// EAGAIN, EINTR.
    pub fn next_async_event(&self) -> Result<(AsyncEvent, Element), Errno> {
        if self.node.is_stale() {
            return Err(Errno::EIO);
        }
        self.events.pop_idly(|(_, element)| element.note_read())
    }
    /// Takes an asynchronous event if one waits, without waiting. It must be acknowledged with
    /// [`Context::ack_async_event`].
    #[must_use]
    pub fn try_async_event(&self) -> Option<(AsyncEvent, Element)> {
        if self.node.is_stale() {
            return None;
        }
        self.events.take(|(_, element)| element.note_read())
    }
    /// Acknowledges one event about `element`.
    pub fn ack_async_event(&self, element: &Element) {
        match element {
            Element::Cq(cq) => cq.async_acks.ack(1),
            Element::Qp(qp) => qp.async_acks.ack(1),
            Element::Srq(srq) => srq.async_acks.ack(1),
            Element::Port(_) => {}
        }
    }
    pub(crate) fn raise(&self, event: AsyncEvent, element: Element) {
        log::debug!("asynchronous event {event:?}");
        self.events.push((event, element));
    }
    /// An event about the port. An unread one of the same kind says no more than this one: a
    /// program that does not read them keeps few.
    pub(crate) fn raise_of_port(&self, event: AsyncEvent) {
        log::info!("{}: {event:?}", self.device.name());
        self.events.remove(|(unread, _)| *unread == event);
        self.raise(event, Element::Port(PORT));
    }
    /// Takes back unread events about an object that is being destroyed.
    pub(crate) fn forget(&self, matches: impl Fn(&Element) -> bool) {
        self.events.remove(|(_, element)| matches(element));
    }
    /// Device memory in use, bytes.
    #[must_use]
    pub fn dm_used(&self) -> usize {
        self.dm_used.load(Ordering::Relaxed)
    }
}
