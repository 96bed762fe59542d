//! What the ids need of the machine: devices, routes, ports among processes, and a door for MADs.
//! The device gives it ([`crate::Live`]); the tests simulate it.
use adverb_cm::{MAD_LEN, Path};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// A local address and the device that has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Node GUID of the device.
    pub guid: u64,
    /// Name of the device, for the log.
    pub name: String,
    /// Its index, as `ibv_get_device_index` says.
    pub index: u32,
    /// The address.
    pub address: IpAddr,
    /// Which entry of the GID table it is.
    pub sgid_index: u8,
    /// The interface, of link-local addresses only.
    pub scope_id: u32,
    /// Path MTU as a code, 1 (256) to 5 (4096).
    pub mtu: u8,
}

/// What is left of a [`Place`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Presence {
    /// All of it.
    There,
    /// The device has lost the address.
    AddressGone,
    /// There is no such device.
    DeviceGone,
}

/// Why a MAD cannot leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NotSent {
    /// What the kernel said.
    pub errno: Errno,
    /// The same in words, for the log.
    pub why: String,
}

/// A service id bound among all processes, free again when it is dropped.
pub trait Claim {
    /// Requests for it come to this process from now on.
    ///
    /// # Errors
    /// EADDRINUSE: another process listens.
    fn listen(&self) -> Result<(), Errno>;
}

/// A group that was joined, left when it is dropped.
#[derive(Debug)]
pub struct Group<M> {
    /// Keeps the membership.
    pub membership: M,
    /// Its GID.
    pub mgid: Ipv6Addr,
    /// Its LID.
    pub mlid: u16,
    /// Hop limit of datagrams to it.
    pub hop_limit: u8,
}

/// The machine.
pub trait Door {
    /// A bound service id.
    type Claim: Claim;
    /// Keeps a queue pair number from being given out again.
    type Hold;
    /// Membership of a multicast group.
    type Membership;

    /// The time, on the clock that the connection manager is driven with.
    fn now(&self) -> adverb_cm::Time;
    /// Sends a MAD. It may be lost on the way.
    ///
    /// # Errors
    /// It cannot leave, now or if it is sent again soon: no socket at the local address, no route.
    fn send(&mut self, path: &Path, mad: &[u8; MAD_LEN]) -> Result<(), NotSent>;
    /// Binds a service id at an address, or at all.
    ///
    /// # Errors
    /// EADDRINUSE, EADDRNOTAVAIL.
    fn claim(&mut self, service_id: u64, local: Option<IpAddr>, shared: bool) -> Result<Self::Claim, Errno>;
    /// Tells when the process of this host that has this communication id ends.
    fn watch_peer(&mut self, remote_id: u32);
    /// Has the peer of a connection told this by somebody else, if this process is killed; in place
    /// of what was entrusted for the connection before.
    fn entrust(&mut self, conn: adverb_cm::Id, farewell: &adverb_cm::Transmit);
    /// The connection is over.
    fn withdraw(&mut self, conn: adverb_cm::Id);
    /// Is it an address of this machine?
    fn is_local(&self, ip: IpAddr) -> bool;
    /// A request for a connection has come: why it is refused, if a fault on request says so.
    fn refuses(&self) -> Option<adverb_cm::RejectReason> {
        None
    }
    /// Keeps a queue pair number.
    fn hold_qpn(&mut self, qpn: u32) -> Self::Hold;
    /// The device that has a local address.
    ///
    /// # Errors
    /// EADDRNOTAVAIL.
    fn place_of(&self, address: IpAddr, scope_id: u32) -> Result<Place, Errno>;
    /// Is [`World::interfaces_changed`](crate::world::World::interfaces_changed) called when they
    /// do? Else the world looks by itself.
    fn hears_of_interfaces(&self) -> bool {
        false
    }
    /// Is the address still there, or at least its device?
    fn presence(&self, place: &Place) -> Presence;
    /// From where a destination is reached.
    ///
    /// # Errors
    /// ENETUNREACH and the like.
    fn place_toward(&self, source: Option<SocketAddr>, destination: SocketAddr) -> Result<Place, Errno>;
    /// Does the machine know, as far as it can tell, to whom on its links it gives packets for a
    /// destination?
    fn knows_neighbour(&self, destination: SocketAddr) -> bool;
    /// Has it find out; nobody waits.
    fn ask_neighbour(&mut self, place: &Place, destination: SocketAddr);
    /// Joins a multicast group on the interface of a local address.
    ///
    /// # Errors
    /// What the kernel says.
    fn join(&mut self, place: &Place, group: IpAddr) -> Result<Group<Self::Membership>, Errno>;
    /// A number that no peer can guess.
    fn random(&mut self) -> u32;
}

/// What a thread that waits for events looks at: a count with one token for each event.
pub trait Tokens {
    /// One more event.
    fn give(&self);
    /// One less.
    fn take(&self);
}

/// Tokens of any kind: a pipe that a program polls, or what a thread or task of this process waits
/// for. They are given under the lock of all ids, so they must not call back into an id.
pub type Signal = std::sync::Arc<dyn Tokens + Send + Sync>;

impl Tokens for Signal {
    fn give(&self) {
        (**self).give();
    }
    fn take(&self) {
        (**self).take();
    }
}
