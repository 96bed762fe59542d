//! The rdma_cm of this process over the device's interface for MADs.
use crate::host::{self, Binding, Group, Host, NotSent, Presence, Signal};
use crate::request::FileId;
use crate::world::World;
use adverb_cm::{MAD_LEN, Path, Time, Transmit};
use adverb_device::mad::{Arrival, MadHandler, MadInterface};
use adverb_device::ranks;
use adverb_device::{Context, Descriptor, Error};
use adverb_device::{mad, multicast};
use adverb_memory::ProcessIdentity;
use adverb_survivor::{Record, Survivor};
use adverb_sync::{Ranked, RankedRw};
use nix::errno::Errno;
use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Waiting events, as bytes in the program's pipe.
#[derive(Debug)]
pub struct Token {
    pub descriptor: Descriptor,
    /// Number of waiting events.
    events: AtomicUsize,
}

impl Token {
    pub fn new(descriptor: Descriptor) -> Self {
        Token { descriptor, events: AtomicUsize::new(0) }
    }

    /// Is there an event? The answer may be out of date, because the caller does not hold the lock.
    pub fn any(&self) -> bool {
        self.events.load(Ordering::Acquire) > 0
    }
}

impl host::Tokens for Token {
    fn give(&self) {
        self.events.fetch_add(1, Ordering::Release);
        adverb_device::Tokens::give(&self.descriptor);
    }
    fn take(&self) {
        self.events.fetch_sub(1, Ordering::Release);
        adverb_device::Tokens::take(&self.descriptor);
    }
}

/// An open file and the program's descriptor of the file.
pub struct Opened {
    pub file: FileId,
    pub token: Arc<Token>,
}

/// The rdma_cm of a process.
pub struct Live {
    pub world: Ranked<World<LiveHost, Signal>, ranks::UcmaWorld>,
    pub mads: Arc<MadInterface>,
    /// Open files by the program's descriptor.
    pub files: RankedRw<BTreeMap<i32, Arc<Opened>>, ranks::UcmaFiles>,
}

/// One slot per process in a chain of forks. A child therefore never meets a lock held by a thread
/// of the parent at the fork.
static LIVES: [Ranked<Option<Arc<Live>>, ranks::UcmaInstance>; 64] =
    [const { Ranked::new(None) }; 64];

impl Live {
    /// The existing instance of this process.
    pub fn existing() -> Option<Arc<Live>> {
        let instance = LIVES[ProcessIdentity::current().number() as usize % LIVES.len()].lock();
        instance.as_ref().filter(|live| !live.mads.is_stale()).cloned()
    }

    /// The instance of this process. The first use creates the instance; the first use in a child
    /// of `fork` creates a new instance.
    pub fn get() -> Result<Arc<Live>, Error> {
        let process = ProcessIdentity::current();
        let mut instance = LIVES[process.number() as usize % LIVES.len()].lock();
        if let Some(live) = instance.as_ref().filter(|live| !live.mads.is_stale()) {
            return Ok(live.clone());
        }
        let handler = Arc::new(Handler(OnceLock::new()));
        let mads = Arc::new(MadInterface::open(handler.clone())?);
        let world = World::new(LiveHost(mads.clone(), Survivor::of_this_run()), mads.config());
        let live = Arc::new(Live { world: Ranked::new(world), mads, files: RankedRw::default() });
        let _ = handler.0.set(Arc::downgrade(&live));
        // Exit handlers run in reverse order. This handler is registered after the node's handler,
        // so `leave` runs first and the last MADs still leave.
        static AT_EXIT: OnceLock<()> = OnceLock::new();
        AT_EXIT.get_or_init(|| adverb_memory::at_exit(leave));
        // The parent's instance is not dropped here, because the descriptors belong to the parent.
        if let Some(old) = instance.replace(live.clone()) {
            std::mem::forget(old);
        }
        Ok(live)
    }

    /// Runs a command of the program. Then arms the timer, so that the device calls the world at
    /// the next timeout.
    pub fn command<R>(&self, call: impl FnOnce(&mut World<LiveHost, Signal>) -> R) -> R {
        let mut world = self.world.lock();
        let done = call(&mut world);
        let timeout = world.next_timeout();
        drop(world);
        if let Some(at) = timeout {
            self.mads.wake_at(at);
        }
        done
    }
}

/// How often an exiting process tries to take the lock of the world, once per millisecond.
const LAST_TRIES: u32 = 100;

/// Ends all ids when the process exits, as the kernel would. The peers of all connections are told.
extern "C" fn leave() {
    let Some(live) = Live::existing() else { return };
    for _ in 0..LAST_TRIES {
        if let Some(mut world) = live.world.try_lock() {
            return world.end();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The callbacks for incoming MADs and timers.
struct Handler(OnceLock<Weak<Live>>);

impl Handler {
    fn with<R>(&self, call: impl FnOnce(&mut World<LiveHost, Signal>) -> Option<R>) -> Option<R> {
        let live = self.0.get()?.upgrade()?;
        let mut world = live.world.lock();
        call(&mut world)
    }
}

impl MadHandler for Handler {
    fn mad(&self, now: Time, arrival: &Arrival<'_>) -> Option<Time> {
        self.with(|world| world.mad(now, arrival.path, arrival.scope_id, arrival.mad))
    }
    fn timeout(&self, now: Time) -> Option<Time> {
        self.with(|world| world.timeout(now))
    }
    fn peer_ended(&self, now: Time, prefix: u32) -> Option<Time> {
        self.with(|world| world.peer_ended(now, prefix))
    }
    fn interfaces_changed(&self, now: Time) -> Option<Time> {
        self.with(|world| world.interfaces_changed(now))
    }
    fn awaits_answer(&self) -> bool {
        let live = self.0.get().and_then(Weak::upgrade);
        live.is_some_and(|live| live.world.try_lock().is_none_or(|world| world.awaits_answer()))
    }
}

/// The device's interface for MADs, and the survivor, which ends the connections if this process is
/// killed.
pub struct LiveHost(Arc<MadInterface>, Survivor);

/// A claim made through [`MadInterface`].
pub struct LiveClaim(mad::Claim);

impl host::Claim for LiveClaim {
    fn listen(&self) -> Result<(), Errno> {
        self.0.listen().map_err(|e| errno(&e))
    }
}

/// A multicast group and its context.
pub struct LiveMembership {
    _membership: multicast::Membership,
    _context: Arc<Context>,
}

fn errno(e: &Error) -> Errno {
    adverb_device::failed::tell("rdma_cm", e);
    Errno::from_raw(e.errno())
}

fn binding(found: mad::Binding) -> Binding {
    let device = &found.device;
    Binding {
        guid: device.guid(),
        name: device.name().to_owned(),
        index: found.index,
        address: found.address,
        sgid_index: found.sgid_index,
        scope_id: found.scope_id,
        mtu: found.path_mtu as u8,
    }
}

/// Are the address and its device still present? If the kernel does not answer, the answer is
/// `There`. An interface that is down, or has no carrier, keeps its addresses and its device.
fn presence(binding: &Binding) -> Presence {
    let Ok(mut all) = getifaddrs() else { return Presence::There };
    let is_it = |entry: InterfaceAddress| {
        let ip = entry.address.and_then(|a| match (a.as_sockaddr_in(), a.as_sockaddr_in6()) {
            (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
            (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
            _ => None,
        });
        ip == Some(binding.address)
    };
    match adverb_device::device::named(&binding.name) {
        _ if all.any(is_it) => Presence::There,
        Ok(None) => Presence::DeviceRemoved,
        Ok(Some(device)) if device.gid_index_of(&binding.address).is_some() => Presence::There,
        Ok(Some(_)) => Presence::AddressRemoved,
        Err(_) => Presence::There,
    }
}

impl Host for LiveHost {
    type Claim = LiveClaim;
    type Reservation = mad::QpnReservation;
    type Membership = LiveMembership;

    fn now(&self) -> Time {
        self.0.now()
    }
    fn send(&mut self, path: &Path, bytes: &[u8; MAD_LEN]) -> Result<(), NotSent> {
        self.0
            .send(path, bytes)
            .map_err(|e| NotSent { errno: Errno::from_raw(e.errno()), why: e.to_string() })
    }
    fn claim(
        &mut self,
        service_id: u64,
        local: Option<IpAddr>,
        shared: bool,
    ) -> Result<LiveClaim, Errno> {
        self.0.claim(service_id, local, shared).map(LiveClaim).map_err(|e| errno(&e))
    }
    fn watch_peer(&mut self, remote_id: u32) {
        // The device reports the end of a peer that has ended already as well.
        let _ = self.0.watch_peer(remote_id);
    }
    fn entrust(&mut self, conn: adverb_cm::Id, farewell: &Transmit) {
        self.1.entrust(Record { local_id: conn.0, path: farewell.path, farewell: farewell.mad });
    }
    fn withdraw(&mut self, conn: adverb_cm::Id) {
        self.1.withdraw(conn.0);
    }
    fn is_local(&self, ip: IpAddr) -> bool {
        self.0.is_local(ip)
    }
    fn refuses(&self) -> Option<adverb_cm::RejectReason> {
        self.0.refuses()
    }
    fn reserve_qpn(&mut self, qpn: u32) -> mad::QpnReservation {
        self.0.reserve_qpn(qpn)
    }
    fn binding_of(&self, address: IpAddr, scope_id: u32) -> Result<Binding, Errno> {
        mad::binding_of(address, scope_id).map(binding).map_err(|e| errno(&e))
    }
    fn hears_of_interfaces(&self) -> bool {
        self.0.hears_of_interfaces()
    }
    fn presence(&self, binding: &Binding) -> Presence {
        presence(binding)
    }
    fn binding_toward(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> Result<Binding, Errno> {
        mad::binding_toward(source, destination).map(binding).map_err(|e| errno(&e))
    }
    fn knows_neighbour(&self, destination: SocketAddr) -> bool {
        mad::neighbour_is_known(destination)
    }
    fn ask_neighbour(&mut self, binding: &Binding, destination: SocketAddr) {
        mad::ask_neighbour(binding.address, destination);
    }
    fn join(&mut self, at: &Binding, group: IpAddr) -> Result<Group<LiveMembership>, Errno> {
        let found = mad::binding_of(at.address, at.scope_id).map_err(|e| errno(&e))?;
        let context = found.device.open().map_err(|e| errno(&e))?;
        let joined = multicast::join(&context, at.address, group).map_err(|e| errno(&e))?;
        Ok(Group {
            mgid: Ipv6Addr::from(joined.mgid.0),
            mlid: joined.mlid,
            hop_limit: joined.ah.hop_limit,
            membership: LiveMembership { _membership: joined, _context: context },
        })
    }
    fn random(&mut self) -> u32 {
        // If the kernel gives no random bytes, the clock still makes the numbers differ over time.
        getrandom::u32().unwrap_or_else(|_| self.0.now().0 as u32)
    }
}
