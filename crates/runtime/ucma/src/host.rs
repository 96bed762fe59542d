//! What the ids need from the machine: devices, routes, claims of ports among processes, and the
//! interface for MADs. In production the device implements these traits ([`crate::Live`]); the
//! tests simulate them.
use adverb_cm::{MAD_LEN, Path};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A local address and its device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// Node GUID of the device.
    pub guid: u64,
    /// Name of the device, for the log.
    pub name: String,
    /// Index of the device, as `ibv_get_device_index` returns it.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Index of the address in the GID table.
    pub sgid_index: u8,
    /// Index of the interface; set for link-local addresses only.
    pub scope_id: u32,
    /// Path MTU as a code, 1 (256) to 5 (4096).
    pub mtu: u8,
}

/// What is left of a [`Binding`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// Device and address are both present.
    There,
    /// The device no longer has the address.
    AddressRemoved,
    /// The device no longer exists.
    DeviceRemoved,
}

/// Why a MAD cannot leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotSent {
    /// The error of the kernel.
    pub errno: Errno,
    /// The same error in words, for the log.
    pub why: String,
}

/// A service id claimed among all processes. Dropping the claim frees the service id.
pub trait Claim {
    /// Routes requests for the service id to this process from now on.
    ///
    /// # Errors
    /// EADDRINUSE: another process listens on the service id.
    fn listen(&self) -> Result<(), Errno>;
}

/// A joined multicast group. Dropping this value leaves the group.
#[derive(Debug)]
pub struct Group<M> {
    /// Holds the membership.
    pub membership: M,
    /// GID of the group.
    pub mgid: Ipv6Addr,
    /// LID of the group.
    pub mlid: u16,
    /// Hop limit of datagrams to the group.
    pub hop_limit: u8,
}

/// The machine.
pub trait Host {
    /// A bound service id.
    type Claim: Claim;
    /// Keeps a queue pair number from being given out again, until it is dropped.
    type Reservation;
    /// Membership of a multicast group.
    type Membership;

    /// The current time, on the clock that drives the connection manager.
    fn now(&self) -> adverb_cm::Time;
    /// Sends a MAD. The network may lose the MAD.
    ///
    /// # Errors
    /// The MAD cannot leave now, nor if it is sent again soon: no socket at the local address, no
    /// route.
    fn send(&mut self, path: &Path, mad: &[u8; MAD_LEN]) -> Result<(), NotSent>;
    /// Claims a service id at one address, or at all addresses with `None`.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL.
    fn claim(
        &mut self,
        service_id: u64,
        local: Option<IpAddr>,
        shared: bool,
    ) -> Result<Self::Claim, Errno>;
    /// Watches the process of this host with this communication id, and reports the end of the
    /// process.
    fn watch_peer(&mut self, remote_id: u32);
    /// Entrusts the farewell of a connection to the survivor, which sends it to the peer if this
    /// process is killed. A new farewell replaces the earlier farewell of the same connection.
    fn entrust(&mut self, conn: adverb_cm::Id, farewell: &adverb_cm::Transmit);
    /// Takes back what was entrusted: the connection is over.
    fn withdraw(&mut self, conn: adverb_cm::Id);
    /// Does the address belong to this machine?
    fn is_local(&self, ip: IpAddr) -> bool;
    /// Asked for each incoming request. `Some`: a fault on request refuses the connection for this
    /// reason.
    fn refuses(&self) -> Option<adverb_cm::RejectReason> {
        None
    }
    /// Keeps a queue pair number from being given out again.
    fn reserve_qpn(&mut self, qpn: u32) -> Self::Reservation;
    /// The device of a local address.
    ///
    /// # Errors
    /// EADDRNOTAVAIL.
    fn binding_of(&self, address: IpAddr, scope_id: u32) -> Result<Binding, Errno>;
    /// Does the machine call [`World::interfaces_changed`](crate::world::World::interfaces_changed)
    /// when interfaces change? Otherwise the world polls.
    fn hears_of_interfaces(&self) -> bool {
        false
    }
    /// Are the address and its device still present?
    fn presence(&self, binding: &Binding) -> Presence;
    /// The local address and device from which a destination is reached.
    ///
    /// # Errors
    /// ENETUNREACH and the like.
    fn binding_toward(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> Result<Binding, Errno>;
    /// Does the machine know the link-layer neighbour for packets to this destination, as far as it
    /// can tell?
    fn knows_neighbour(&self, destination: SocketAddr) -> bool;
    /// Starts neighbour discovery for this destination, without waiting for the answer.
    fn ask_neighbour(&mut self, binding: &Binding, destination: SocketAddr);
    /// Joins a multicast group on the interface of a local address.
    ///
    /// # Errors
    /// The error of the kernel.
    fn join(&mut self, binding: &Binding, group: IpAddr) -> Result<Group<Self::Membership>, Errno>;
    /// An unpredictable number.
    fn random(&mut self) -> u32;
}

/// A counter with one token for each event. A thread that waits for events watches the counter.
pub trait Tokens {
    /// Adds a token, for a new event.
    fn give(&self);
    /// Removes a token, with an event.
    fn take(&self);
}

/// A token counter of any kind: a pipe that a program polls, or a wake-up for a thread or task of
/// this process. `give` and `take` run under the lock of all ids, so they must not call into an id.
pub type Signal = std::sync::Arc<dyn Tokens + Send + Sync>;

impl Tokens for Signal {
    fn give(&self) {
        (**self).give();
    }
    fn take(&self) {
        (**self).take();
    }
}
