//! An open device.
use crate::async_event::{AsyncEvent, Source, Subject};
use crate::descriptor::kinds::Kind;
use crate::error::Error;
use crate::faults::{Call, Outage};
use crate::nic::{self, Has, Nic};
use crate::node::ports::{DeviceScope, Follower, Port, PortState, say_who_is_in_the_way};
use crate::node::reach::await_way;
use crate::node::{GidEntry, ListPlace, Listed, Node, scope_of};
use crate::objects::device::{self, DEFAULT_PKEY, Device, PKEYS, PORT};
use crate::objects::event_queue::EventQueue;
use adverb_engine::{AddressVector, Gid, Limits, PathMtu};
use adverb_nldev::Object;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// An address in the form of `ibv_ah_attr`.
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
    nic: Option<&'static Nic>,
    port: Arc<Port>,
    /// Packets have to be received at every address of the port.
    at_every_address: AtomicBool,
    pub(crate) events: EventQueue<(AsyncEvent, Source)>,
    pub(crate) dm_used: AtomicUsize,
    pub(crate) place: ListPlace,
}

impl Device {
    /// Opens the device.
    ///
    /// # Errors
    /// Errors of the kernel for descriptors, threads and the slot of the process.
    pub fn open(self: &Arc<Self>) -> Result<Arc<Context>, Error> {
        let node = Node::get()?;
        node.fault_call(Call::OpenDevice)?;
        node.check_device(self.name())?;
        let nic = nic::asked()?;
        let port = node.ports.open(self.scope(), || {
            say_who_is_in_the_way(self.name(), self.interfaces());
            self.port_state()
        });
        for Outage { device, kind, .. } in node.take_unchecked_outages() {
            if device::named(&device)?.is_none() {
                let devices = device::list()?;
                let names: Vec<_> = devices.iter().map(|device| device.name()).collect();
                let (kind, names) = (kind.name(), names.join(", "));
                log::warn!("{kind}: there is no device {device}; the devices are {names}");
            }
        }
        let context = Context::on(node, self, nic, port)?;
        // The list of devices may be old.
        context.node.look_at_interfaces()?;
        Ok(context)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.node.open.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Context {
    /// Opens a device that only `node` has. Its interface is no interface of this machine.
    ///
    /// # Errors
    /// No descriptors.
    #[cfg(feature = "sim")]
    pub fn simulated(
        node: &Arc<Node>,
        interface: crate::interfaces::Interface,
    ) -> Result<Arc<Self>, Error> {
        let device = Arc::new(Device::of_interface(&interface));
        let port = node.ports.open(device.scope(), || device.port_state());
        Context::on(node.clone(), &device, None, port)
    }
    fn on(
        node: Arc<Node>,
        device: &Arc<Device>,
        nic: Option<&'static Nic>,
        port: Arc<Port>,
    ) -> Result<Arc<Self>, Error> {
        let limits = device.limits();
        let context = Arc::new(Context {
            device: device.clone(),
            place: node.objects.place(),
            node,
            limits: nic.map_or(limits, |nic| nic.limits(limits)),
            nic,
            port,
            at_every_address: AtomicBool::new(false),
            events: EventQueue::new(Kind::empty())?,
            dm_used: AtomicUsize::new(0),
        });
        let follower: Weak<Context> = Arc::downgrade(&context);
        context.place.fill(&context);
        context.node.open.fetch_add(1, Ordering::AcqRel);
        context.node.ports.enter(follower);
        context.node.opened(device.name(), device.scope());
        Ok(context)
    }
    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
    /// Counts a call that makes or changes an object. EIO in a child of `fork` and after the
    /// failure of the device, or the error of a fault on request.
    pub(crate) fn fault_call(&self, call: Call) -> Result<(), Error> {
        self.node.check_alive()?;
        self.node.fault_call(call)?;
        self.check_device()
    }
    /// EIO in a child of `fork`, and after the failure of the device on request.
    pub(crate) fn check_usable(&self) -> Result<(), Error> {
        self.node.check_alive()?;
        self.check_device()
    }
    /// For calls that make, change or read an object.
    ///
    /// # Errors
    /// EIO after the failure of the device on request.
    pub fn check_device(&self) -> Result<(), Error> {
        self.node.check_device(self.device.name())
    }
    /// A place in the list of the process's objects.
    pub(crate) fn place(&self) -> ListPlace {
        self.node.objects.place()
    }
    /// The node of the process.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }
    /// The limits of the device. The MTU is the port's MTU when the device was opened; see
    /// [`Context::port_mtu`].
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
    /// The NIC that this device stands for, if requested.
    #[must_use]
    pub fn nic(&self) -> Option<&'static Nic> {
        self.nic
    }
    /// EOPNOTSUPP if the NIC that this device stands for lacks a feature.
    pub(crate) fn needs(&self, what: Has) -> Result<(), Error> {
        self.nic.map_or(Ok(()), |nic| nic.needs(what))
    }
    /// The limits for a queue pair with this address vector. The path MTU is limited by the
    /// interface of the GID, which need not be the first interface of the device.
    pub(crate) fn limits_at(&self, av: &AddressVector) -> Limits {
        let entry = self.port.entry(av.sgid_index.into());
        let at_gid = (entry.gid == av.sgid && !entry.gid.is_zero()).then(|| entry.path_mtu());
        Limits { port_mtu: at_gid.unwrap_or_else(|| self.port_mtu()), ..self.limits }
    }
    /// The largest path MTU for the interface's current MTU.
    #[must_use]
    pub fn port_mtu(&self) -> PathMtu {
        self.port.path_mtu()
    }
    /// The current state of the port.
    #[must_use]
    pub fn port_state(&self) -> PortState {
        self.port.state()
    }
    /// The current GID table, up to its last entry that is not empty.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.port.state().gids()
    }
    /// The entry of the GID table with this index. Beyond the end of the table, an empty entry.
    #[must_use]
    pub fn gid_entry(&self, index: usize) -> GidEntry {
        self.port.entry(index)
    }
    /// A GID of the port; the zero GID for an empty entry.
    ///
    /// # Errors
    /// EINVAL for another port or an index beyond the table.
    pub fn gid(&self, port: u8, index: usize) -> Result<Gid, Error> {
        self.check_port(port)?;
        check_index("GID", index, self.limits.gids)?;
        Ok(self.port.entry(index).gid)
    }
    /// The P_Key at an index.
    ///
    /// # Errors
    /// EINVAL for another port or an index beyond the table.
    pub fn pkey(&self, port: u8, index: usize) -> Result<u16, Error> {
        self.check_port(port)?;
        check_index("P_Key", index, PKEYS)?;
        Ok(DEFAULT_PKEY)
    }
    /// # Errors
    /// EINVAL unless the port exists.
    pub fn check_port(&self, port: u8) -> Result<(), Error> {
        if port != PORT {
            return Err(Error::invalid(format!("port number is {port}"), "the device has port 1"));
        }
        Ok(())
    }
    /// Resolves an address: checks the fields and finds the local GID of the index. Waits while
    /// IPv6 duplicate address detection for the local address is under way, and while the kernel
    /// asks the link for the neighbour on the way to the peer.
    ///
    /// # Errors
    /// EINVAL naming the field. ETIMEDOUT, ENETUNREACH: the kernel has no way to the peer.
    pub fn resolve(&self, attr: &AhAttr) -> Result<AddressVector, Error> {
        self.check_port(attr.port_num)?;
        if !attr.is_global {
            let rule = "RoCE addresses need a GRH (a destination GID)";
            return Err(Error::invalid("is_global is 0", rule));
        }
        let sgid = self.gid(attr.port_num, usize::from(attr.sgid_index))?;
        if sgid.is_zero() {
            let filled = self.gids().iter().filter(|gid| !gid.is_zero()).count();
            let rule = format!("this GID table entry is empty; the port has {filled}");
            return Err(Error::invalid(format!("sgid_index is {}", attr.sgid_index), rule));
        }
        if attr.dgid.is_zero() {
            return Err(Error::invalid("dgid", "the destination GID is zero"));
        }
        let dgid = crate::objects::multicast::toward(&attr.dgid, sgid.ipv4().is_some());
        if sgid.ipv4().is_some() != dgid.ipv4().is_some() {
            let what = format!("dgid is {dgid}, sgid is {sgid}");
            return Err(Error::invalid(what, "both must be IPv4 or both IPv6"));
        }
        // Packets leave from the local address. Within a host they come from the other address.
        let ends = [crate::interfaces::ip_of(&sgid), crate::interfaces::ip_of(&dgid)];
        self.node.addresses.await_usable(&self.node, &ends);
        let av = AddressVector {
            sgid,
            dgid,
            scope_id: self.port.entry(attr.sgid_index.into()).interface,
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
        };
        await_way(&self.node, &av)?;
        Ok(av)
    }
    /// Opens port 4791 at every address of the device, because a datagram QP receives at all of
    /// them.
    pub(crate) fn open_all(&self) -> Result<(), Error> {
        self.at_every_address.store(true, Ordering::Relaxed);
        let mut first = None;
        let mut opened = 0;
        for (ip, scope) in self.addresses() {
            match self.node.addresses.open_if_usable(&self.node, ip, scope) {
                Ok(Some(_)) => opened += 1,
                // `open_new_addresses` opens this address later.
                Ok(None) => {}
                Err(e) => {
                    log::error!("{e}");
                    first = first.or(Some(e));
                }
            }
        }
        match first {
            Some(e) if opened == 0 => Err(e),
            _ => Ok(()),
        }
    }
    /// The addresses of the port, each with the interface index that the address needs.
    fn addresses(&self) -> Vec<(IpAddr, u32)> {
        let used = |entry: &&GidEntry| !entry.gid.is_zero();
        let table = self.port.state().table;
        let address = |entry: &GidEntry| {
            (crate::interfaces::ip_of(&entry.gid), scope_of(&entry.gid, entry.interface))
        };
        table.iter().filter(used).map(address).collect()
    }
    /// The descriptor for asynchronous events, for a poll together with other descriptors, or for
    /// setting `O_NONBLOCK`.
    #[must_use]
    pub fn async_events(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
    /// Queues an event about an object.
    pub(crate) fn raise(&self, event: AsyncEvent, object: Arc<dyn Subject>) {
        self.add_event(event, Source::Object(object));
    }
    fn add_event(&self, event: AsyncEvent, source: Source) {
        log::debug!("asynchronous event {event:?}");
        self.events.push((event, source));
    }
    /// Removes unread events about an object that is being destroyed.
    pub(crate) fn forget<T>(&self, object: &T) {
        let address = std::ptr::from_ref(object).cast::<()>();
        self.events.remove(|(_, source)| match source {
            Source::Object(object) => Arc::as_ptr(object).cast::<()>() == address,
            Source::Port(_) => false,
        });
    }
}

fn check_index(of: &str, index: usize, len: u16) -> Result<(), Error> {
    if index < usize::from(len) {
        return Ok(());
    }
    Err(Error::invalid(format!("{of} index is {index}"), format!("the table has {len}")))
}

impl Listed for Context {
    fn describe(&self) -> Option<(String, Object)> {
        Some((self.device.name().to_owned(), Object::Context { number: self.place.serial() }))
    }
}

impl Follower for Context {
    fn device(&self) -> (&str, DeviceScope) {
        (self.device.name(), self.device.scope())
    }
    fn port(&self) -> &Arc<Port> {
        &self.port
    }
    /// Opens port 4791 at new addresses, for datagram queue pairs. An address that is not ready yet
    /// is tried again at the next notification.
    fn open_new_addresses(&self) {
        if !self.at_every_address.load(Ordering::Relaxed) {
            return;
        }
        for (ip, scope) in self.addresses() {
            if let Err(e) = self.node.addresses.open_if_usable(&self.node, ip, scope) {
                log::info!("{}: {e}", self.device.name());
            }
        }
    }
    /// Queues an event about the port. An older unread event of the same kind is removed, because
    /// both say the same. So a program that never reads events keeps only a few.
    fn raise_of_port(&self, event: AsyncEvent) {
        log::info!("{}: {event:?}", self.device.name());
        self.events.remove(|(unread, _)| *unread == event);
        self.add_event(event, Source::Port(PORT));
    }
}
