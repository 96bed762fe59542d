//! The simulated machines and the network between them.
use crate::host::{self, Binding, Group, Host, NotSent, Presence};
use crate::id::HOP_LIMIT;
use adverb_cm::{MAD_LEN, Path, Route, Time, Transmit, answer_for_nobody, route};
use nix::errno::Errno;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// Number of prefix bits in a communication id, which name the process.
pub const PREFIX_BITS: u8 = 8;

/// A MAD in flight.
#[derive(Clone)]
pub struct Flying {
    pub at: Time,
    pub path: Path,
    pub mad: [u8; MAD_LEN],
}

/// A claim of a process.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Claimed {
    address: Option<IpAddr>,
    process: u32,
    shared: bool,
}

/// What the processes of a test share.
#[derive(Default)]
pub struct Network {
    pub now: Cell<Time>,
    pub flying: RefCell<VecDeque<Flying>>,
    /// Loss, repetition and delay, in percent.
    pub faults: Cell<[u32; 3]>,
    seed: Cell<u64>,
    /// The error of every `send`.
    pub no_way: Cell<Option<Errno>>,
    /// Service ids claimed.
    claimed: RefCell<BTreeMap<u64, Vec<Claimed>>>,
    listening: RefCell<BTreeMap<u64, BTreeSet<u32>>>,
    /// Farewells for the case that a process is killed, by process and communication id.
    pub entrusted: RefCell<BTreeMap<(u32, u32), Transmit>>,
    /// Queue pair numbers reserved.
    pub reserved: RefCell<Vec<u32>>,
    pub groups: Cell<usize>,
    /// Processes that have ended.
    pub dead: RefCell<BTreeSet<u32>>,
    /// Lost addresses and lost devices.
    pub lost: RefCell<(BTreeSet<IpAddr>, BTreeSet<String>)>,
    /// The machine reports changes of interfaces.
    pub tells: Cell<bool>,
    /// Neighbours that do not answer, and the number of discovery requests for each.
    pub silent: RefCell<BTreeMap<IpAddr, u32>>,
}

impl Network {
    pub fn new(seed: u64) -> Rc<Network> {
        Rc::new(Network {
            now: Cell::new(Time(1)),
            seed: Cell::new(seed.wrapping_mul(2) | 1),
            ..Network::default()
        })
    }

    /// A random number from the seed.
    pub fn draw(&self, below: u32) -> u32 {
        let mut x = self.seed.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.seed.set(x);
        ((x >> 33) % u64::from(below.max(1))) as u32
    }

    fn send(&self, path: Path, mad: [u8; MAD_LEN]) {
        let [lost, twice, late] = self.faults.get();
        if self.draw(100) < lost {
            return;
        }
        let copies = if self.draw(100) < twice { 2 } else { 1 };
        for _ in 0..copies {
            let delay = if self.draw(100) < late { self.draw(400) } else { 1 };
            let at = self.now.get() + Duration::from_millis(delay.into());
            self.flying.borrow_mut().push_back(Flying { at, path, mad });
        }
    }

    /// The destination processes of a MAD.
    pub fn owners(&self, flying: &Flying) -> Vec<u32> {
        let shift = 32 - u32::from(PREFIX_BITS);
        match route(&flying.mad) {
            Ok(Route::Id(id)) => vec![id.0 >> shift],
            Ok(Route::Service(service)) => {
                self.listening.borrow().get(&service).into_iter().flatten().copied().collect()
            }
            Ok(Route::All) => (1..16).collect(),
            Err(e) => panic!("a MAD that is none: {e}"),
        }
    }

    /// Answers a MAD for which there is no process.
    pub fn answer(&self, flying: &Flying) {
        if let Some(mad) = answer_for_nobody(&flying.mad) {
            self.send(flying.path.reversed(), mad);
        }
    }

    /// Removes a process from the tables of the host.
    pub fn forget(&self, process: u32) {
        self.claimed.borrow_mut().values_mut().for_each(|all| all.retain(|c| c.process != process));
        self.claimed.borrow_mut().retain(|_, all| !all.is_empty());
        self.listening.borrow_mut().values_mut().for_each(|all| {
            all.remove(&process);
        });
        self.listening.borrow_mut().retain(|_, all| !all.is_empty());
    }

    /// Checks that no process has a claim, a reserved number or a group.
    pub fn assert_clean(&self) {
        assert!(self.claimed.borrow().is_empty(), "claims: {:?}", self.claimed.borrow());
        assert!(self.listening.borrow().is_empty(), "listeners: {:?}", self.listening.borrow());
        assert!(self.entrusted.borrow().is_empty(), "entrusted: {:?}", self.entrusted.borrow());
        assert!(self.reserved.borrow().is_empty(), "held: {:?}", self.reserved.borrow());
        assert_eq!(self.groups.get(), 0);
    }
}

/// The machine as one process sees it; the addresses are those of its host.
pub struct Machine {
    pub network: Rc<Network>,
    pub process: u32,
    pub addresses: Vec<IpAddr>,
}

pub struct Claim {
    network: Rc<Network>,
    service: u64,
    claimed: Claimed,
}

impl host::Claim for Claim {
    fn listen(&self) -> Result<(), Errno> {
        self.network
            .listening
            .borrow_mut()
            .entry(self.service)
            .or_default()
            .insert(self.claimed.process);
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let (service, process) = (self.service, self.claimed.process);
        let mut claimed = self.network.claimed.borrow_mut();
        let Some(all) = claimed.get_mut(&service) else { return };
        if let Some(n) = all.iter().position(|c| *c == self.claimed) {
            all.remove(n);
        }
        let left = all.iter().any(|c| c.process == process);
        if all.is_empty() {
            claimed.remove(&service);
        }
        let mut listening = self.network.listening.borrow_mut();
        if let Some(who) = listening.get_mut(&service).filter(|_| !left) {
            who.remove(&process);
            if who.is_empty() {
                listening.remove(&service);
            }
        }
    }
}

/// Runs a function when it is dropped.
pub struct Kept(Option<Box<dyn FnOnce()>>);

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(leave) = self.0.take() {
            leave();
        }
    }
}

impl Host for Machine {
    type Claim = Claim;
    type Reservation = Kept;
    type Membership = Kept;

    fn now(&self) -> Time {
        self.network.now.get()
    }
    fn send(&mut self, path: &Path, mad: &[u8; MAD_LEN]) -> Result<(), NotSent> {
        if let Some(errno) = self.network.no_way.get() {
            return Err(NotSent { errno, why: "no way".into() });
        }
        self.network.send(*path, *mad);
        Ok(())
    }
    fn claim(&mut self, service: u64, local: Option<IpAddr>, shared: bool) -> Result<Claim, Errno> {
        let mut claimed = self.network.claimed.borrow_mut();
        let all = claimed.entry(service).or_default();
        // Ports are claimed per host, so processes of another host do not conflict.
        let conflict = all.iter().any(|other| {
            self.same_host(other.process)
                && !(shared && other.shared)
                && (other.address.is_none() || local.is_none() || other.address == local)
        });
        if conflict {
            return Err(Errno::EADDRINUSE);
        }
        let claimed = Claimed { address: local, process: self.process, shared };
        all.push(claimed);
        Ok(Claim { network: self.network.clone(), service, claimed })
    }
    fn watch_peer(&mut self, _remote_id: u32) {}
    fn entrust(&mut self, conn: adverb_cm::Id, farewell: &Transmit) {
        let known =
            self.network.entrusted.borrow_mut().insert((self.process, conn.0), farewell.clone());
        assert_ne!(known.as_ref(), Some(farewell), "the same words are said once");
    }
    fn withdraw(&mut self, conn: adverb_cm::Id) {
        let known = self.network.entrusted.borrow_mut().remove(&(self.process, conn.0));
        assert!(known.is_some(), "what is withdrawn was entrusted");
    }
    fn is_local(&self, ip: IpAddr) -> bool {
        self.addresses.contains(&ip)
    }
    fn reserve_qpn(&mut self, qpn: u32) -> Kept {
        self.network.reserved.borrow_mut().push(qpn);
        let network = self.network.clone();
        Kept(Some(Box::new(move || {
            let mut held = network.reserved.borrow_mut();
            let n = held.iter().position(|&q| q == qpn).expect("held");
            held.remove(n);
        })))
    }
    fn binding_of(&self, address: IpAddr, scope_id: u32) -> Result<Binding, Errno> {
        let n = self.addresses.iter().position(|a| *a == address).ok_or(Errno::EADDRNOTAVAIL)?;
        if self.network.lost.borrow().0.contains(&address) {
            return Err(Errno::EADDRNOTAVAIL);
        }
        let name = format!("adverb_sim{}", self.process);
        let guid = u64::from(self.process) + 0x1000;
        Ok(Binding { guid, name, index: 3, address, sgid_index: n as u8, scope_id, mtu: 3 })
    }
    fn hears_of_interfaces(&self) -> bool {
        self.network.tells.get()
    }
    fn presence(&self, binding: &Binding) -> Presence {
        let (addresses, devices) = &*self.network.lost.borrow();
        match (addresses.contains(&binding.address), devices.contains(&binding.name)) {
            (_, true) => Presence::DeviceRemoved,
            (true, false) => Presence::AddressRemoved,
            (false, false) => Presence::There,
        }
    }
    fn binding_toward(
        &self,
        source: Option<SocketAddr>,
        destination: SocketAddr,
    ) -> Result<Binding, Errno> {
        if destination.ip().to_string().starts_with("192.") {
            return Err(Errno::ENETUNREACH);
        }
        let scope = match destination {
            SocketAddr::V6(v6) => v6.scope_id(),
            SocketAddr::V4(_) => 0,
        };
        let link_local = destination.ip().to_string().starts_with("fe80");
        let fits = |a: &&IpAddr| {
            a.is_ipv4() == destination.is_ipv4() && a.to_string().starts_with("fe80") == link_local
        };
        let source = source.map(|s| s.ip()).or_else(|| self.addresses.iter().find(fits).copied());
        self.binding_of(source.ok_or(Errno::ENETUNREACH)?, scope)
    }
    fn knows_neighbour(&self, destination: SocketAddr) -> bool {
        !self.network.silent.borrow().contains_key(&destination.ip())
    }
    fn ask_neighbour(&mut self, _place: &Binding, destination: SocketAddr) {
        if let Some(asked) = self.network.silent.borrow_mut().get_mut(&destination.ip()) {
            *asked += 1;
        }
    }
    fn join(&mut self, _place: &Binding, group: IpAddr) -> Result<Group<Kept>, Errno> {
        if !group.is_multicast() {
            return Err(Errno::EINVAL);
        }
        self.network.groups.set(self.network.groups.get() + 1);
        let network = self.network.clone();
        let membership = Kept(Some(Box::new(move || network.groups.set(network.groups.get() - 1))));
        Ok(Group {
            membership,
            mgid: adverb_cm::ip::gid(group),
            mlid: 0xc000,
            hop_limit: HOP_LIMIT,
        })
    }
    fn random(&mut self) -> u32 {
        self.network.draw(u32::MAX)
    }
}

impl Machine {
    /// Processes 1 to 7 run on one host, the others on another.
    fn same_host(&self, process: u32) -> bool {
        (self.process < 8) == (process < 8)
    }
}
