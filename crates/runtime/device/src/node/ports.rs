//! The port of open devices. It follows the state, MTU and addresses of its interfaces.
//!
//! An entry of the GID table keeps its index while other addresses come and go, as queue pairs and
//! address handles name the entry by its index. A removed address leaves an empty entry for the
//! next new address.
use crate::async_event::AsyncEvent;
use crate::interfaces::{self, Interface, gid_of};
use crate::ranks;
use adverb_engine::{Gid, PathMtu};
use adverb_os::InterfaceNews;
use adverb_sync::{Ranked, RankedRw};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Entries of the GID table, including empty entries.
pub const GID_TABLE: usize = 64;

/// An object that is told of changes of a port.
pub(crate) trait Follower: Send + Sync {
    /// The name of the device, and its interfaces.
    fn device(&self) -> (&str, DeviceScope);
    /// The port in question.
    fn port(&self) -> &Arc<Port>;
    /// New addresses may have come.
    fn open_new_addresses(&self);
    /// An event of the port.
    fn raise_of_port(&self, event: AsyncEvent);
}

/// The interfaces of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DeviceScope {
    /// All interfaces with an address that lead out, and loopback.
    Host,
    /// The interface with this index.
    Interface(u32),
    /// A device that the selection names. `mark` tells such devices apart.
    Named {
        mark: u64,
        /// As [`DeviceScope::Interface`]; `None` as [`DeviceScope::Host`].
        interface: Option<u32>,
        /// The only address of the device.
        address: Option<IpAddr>,
    },
}

impl DeviceScope {
    /// The interfaces of the device. The state of the first one is the state of the port.
    pub(crate) fn members(self, all: &[Interface]) -> Vec<Interface> {
        let (only, address) = match self {
            DeviceScope::Host => (None, None),
            DeviceScope::Interface(index) => (Some(index), None),
            DeviceScope::Named { interface, address, .. } => (interface, address),
        };
        let belongs = |i: &&Interface| match only {
            None => (i.outward || i.loopback) && !i.addresses.is_empty(),
            Some(index) => i.index == index,
        };
        let mut members: Vec<Interface> = all.iter().filter(belongs).cloned().collect();
        if let Some(address) = address {
            for member in &mut members {
                let has = member.has(&address);
                member.addresses = has.then_some(address).into_iter().collect();
            }
        }
        members
    }

    /// Does the device end with its interface?
    fn ends_with_interface(self) -> bool {
        !matches!(self, DeviceScope::Host | DeviceScope::Named { interface: None, .. })
    }
}

/// An entry of the GID table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GidEntry {
    /// The GID. Zero for an empty entry.
    pub gid: Gid,
    /// Index of the interface with the address.
    pub interface: u32,
    /// MTU of this interface in bytes.
    pub mtu: usize,
}

impl GidEntry {
    /// Do both entries stand for one address? A link-local address has a meaning only together with
    /// its interface.
    fn is_same(&self, other: &GidEntry) -> bool {
        let local = Ipv6Addr::from(self.gid.0).is_unicast_link_local();
        self.gid == other.gid && (!local || self.interface == other.interface)
    }

    /// The largest path MTU with packets that fit the interface.
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        PathMtu::for_interface(self.mtu)
    }
}

/// The present state of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortState {
    /// The first interface is up and has a carrier.
    pub up: bool,
    /// MTU of the first interface in bytes.
    pub mtu: usize,
    /// Speed of the first interface in Mbit/s.
    pub speed: u32,
    /// The interfaces, by index.
    pub interfaces: Vec<u32>,
    /// The GID table up to its last entry in use.
    pub table: Vec<GidEntry>,
}

impl PortState {
    /// The state with these interfaces; `None` without any.
    pub(crate) fn of(members: &[Interface], table: &[GidEntry]) -> Option<Self> {
        let first = members.first()?;
        Some(PortState {
            up: first.up,
            mtu: first.mtu,
            speed: first.speed,
            interfaces: members.iter().map(|i| i.index).collect(),
            table: merged(table, members),
        })
    }

    /// The largest path MTU with packets that fit.
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        PathMtu::for_interface(self.mtu)
    }

    /// The GIDs of the table. Empty entries are zero.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        self.table.iter().map(|entry| entry.gid).collect()
    }
}

/// The port of a device, shared by all contexts of the device.
#[derive(Debug)]
pub(crate) struct Port(RankedRw<PortState, ranks::Port>);

impl Port {
    pub(crate) fn state(&self) -> PortState {
        self.0.read().clone()
    }

    /// An entry of the GID table. Beyond its end, an empty entry.
    pub(crate) fn entry(&self, index: usize) -> GidEntry {
        self.0.read().table.get(index).copied().unwrap_or_default()
    }

    pub(crate) fn path_mtu(&self) -> PathMtu {
        self.0.read().path_mtu()
    }

    /// Takes over the state of the interfaces. Returns the events for programs. `ends`: the device
    /// ends with its interface.
    fn follow(&self, members: &[Interface], ends: bool) -> Vec<AsyncEvent> {
        let mut state = self.0.write();
        let none =
            || PortState { up: false, interfaces: Vec::new(), table: Vec::new(), ..state.clone() };
        let new = PortState::of(members, &state.table).unwrap_or_else(none);
        let places = |state: &PortState| {
            state.table.iter().map(|entry| (entry.gid, entry.interface)).collect::<Vec<_>>()
        };
        let mut events = Vec::new();
        if state.up && !new.up {
            events.push(AsyncEvent::PortErr);
        }
        if places(&state) != places(&new) {
            events.push(AsyncEvent::GidChange);
        }
        if !state.up && new.up {
            events.push(AsyncEvent::PortActive);
        }
        if ends && members.is_empty() {
            events.push(AsyncEvent::DeviceFatal);
        }
        *state = new;
        events
    }
}

/// A table of the addresses of these interfaces. An address that is in `table` keeps its index.
pub(crate) fn merged(table: &[GidEntry], members: &[Interface]) -> Vec<GidEntry> {
    let entries = |i: &Interface| {
        let (interface, mtu) = (i.index, i.mtu);
        let entry = move |ip: &IpAddr| GidEntry { gid: gid_of(ip), interface, mtu };
        i.addresses.iter().map(entry).collect::<Vec<_>>()
    };
    let mut wanted: Vec<GidEntry> = Vec::new();
    for entry in members.iter().flat_map(entries) {
        if wanted.len() < GID_TABLE && !wanted.iter().any(|known| known.is_same(&entry)) {
            wanted.push(entry);
        }
    }
    let now = |old: &GidEntry| wanted.iter().find(|new| new.is_same(old)).copied();
    let mut new: Vec<GidEntry> = table.iter().map(|old| now(old).unwrap_or_default()).collect();
    for entry in wanted {
        if new.iter().any(|known| known.is_same(&entry)) {
            continue;
        }
        match new.iter_mut().find(|entry| entry.gid.is_zero()) {
            Some(empty) => *empty = entry,
            None => new.push(entry),
        }
    }
    while new.last().is_some_and(|entry| entry.gid.is_zero()) {
        new.pop();
    }
    new
}

/// Warns if another user has the UDP port. A program that only asks for attributes needs no UDP
/// port, but most programs that open a device go on to connect.
pub(crate) fn say_who_is_in_the_way(name: &str, members: &[Interface]) {
    // One user has the port at all addresses of a family.
    for ipv4 in [true, false] {
        let mut addresses = members.iter().flat_map(|i| &i.addresses);
        let taken = addresses.by_ref().filter(|ip| ip.is_ipv4() == ipv4);
        if let Some(taken) = taken.copied().find_map(adverb_link::port_of_others) {
            log::warn!("nothing can be connected at {name}: {taken}");
        }
    }
}

/// The ports of a process.
#[derive(Default)]
pub(crate) struct Ports {
    known: Ranked<Known, ranks::KnownPorts>,
    followers: Ranked<Vec<Weak<dyn Follower>>, ranks::Followers>,
    /// There are events that the background thread has not delivered yet.
    pub(crate) any: AtomicBool,
}

#[derive(Default)]
struct Known {
    ports: BTreeMap<DeviceScope, Arc<Port>>,
    /// The kernel's last list of interfaces. `None` after a change.
    interfaces: Option<Arc<[Interface]>>,
    /// Devices whose links are down on request.
    down: BTreeSet<DeviceScope>,
    events: Vec<(Arc<Port>, AsyncEvent)>,
}

impl Ports {
    /// All present interfaces. Open ports follow changes. The background thread delivers the
    /// events.
    ///
    /// The kernel is asked for the interfaces at the first call, and if `news` has messages that
    /// the background thread has not taken yet. Otherwise the earlier list is valid.
    pub(crate) fn look(&self, news: Option<&InterfaceNews>) -> nix::Result<Arc<[Interface]>> {
        let mut known = self.known.lock();
        if news.is_none_or(InterfaceNews::wait) {
            known.interfaces = None;
        }
        self.found(&mut known)
    }

    /// The current GID table of an open device.
    pub(crate) fn table(&self, scope: DeviceScope) -> Option<Vec<GidEntry>> {
        self.known.lock().ports.get(&scope).map(|port| port.state().table)
    }

    /// The link of a device goes down on request, or is up again. The port follows as after news of
    /// an interface without a carrier.
    pub(super) fn set_link(&self, scope: DeviceScope, down: bool) -> nix::Result<()> {
        let mut known = self.known.lock();
        if down {
            known.down.insert(scope)
        } else {
            known.down.remove(&scope)
        };
        known.interfaces = None;
        self.found(&mut known).map(drop)
    }

    /// A device fails on request.
    pub(super) fn fail(&self, scope: DeviceScope) {
        let mut known = self.known.lock();
        let Known { ports, events, .. } = &mut *known;
        events.extend(ports.get(&scope).map(|port| (port.clone(), AsyncEvent::DeviceFatal)));
    }

    /// The open devices.
    pub(super) fn devices(&self) -> BTreeMap<String, DeviceScope> {
        let followers: Vec<_> = self.followers.lock().iter().filter_map(Weak::upgrade).collect();
        let device = |f: &Arc<dyn Follower>| (f.device().0.to_owned(), f.device().1);
        followers.iter().map(device).collect()
    }

    /// Takes the kernel's news, and asks for the interfaces again after news. Only called by the
    /// background thread. News is taken under the lock. So another thread finds either the news, or
    /// its effect.
    pub(crate) fn hear(&self, news: &InterfaceNews) -> nix::Result<()> {
        let mut known = self.known.lock();
        if news.take() {
            known.interfaces = None;
            self.found(&mut known)?;
        }
        Ok(())
    }

    /// The interfaces. The kernel is asked under the lock, so that an old list never replaces a
    /// newer list.
    fn found(&self, known: &mut Known) -> nix::Result<Arc<[Interface]>> {
        if let Some(found) = &known.interfaces {
            return Ok(found.clone());
        }
        let found: Arc<[Interface]> = interfaces::all()?.into();
        let Known { ports, down, events: waiting, .. } = known;
        ports.retain(|scope, port| {
            let mut members = scope.members(&found);
            members.iter_mut().for_each(|i| i.up &= !down.contains(scope));
            let ends = scope.ends_with_interface();
            let events = port.follow(&members, ends);
            waiting.extend(events.into_iter().map(|event| (port.clone(), event)));
            !ends || !members.is_empty()
        });
        if !known.events.is_empty() {
            self.any.store(true, Ordering::SeqCst);
        }
        known.interfaces = Some(found.clone());
        Ok(found)
    }

    /// The port of a device, which follows its interfaces from now on. `state` is called if no
    /// other context has opened the port.
    pub(crate) fn open(&self, scope: DeviceScope, state: impl FnOnce() -> PortState) -> Arc<Port> {
        let mut known = self.known.lock();
        let Known { ports, interfaces, .. } = &mut *known;
        let new = || {
            // The caller's list may be old. The next look asks the kernel, and the port follows.
            *interfaces = None;
            Arc::new(Port(RankedRw::new(state())))
        };
        ports.entry(scope).or_insert_with(new).clone()
    }

    /// Tells `follower` of changes from now on.
    pub(crate) fn enter(&self, follower: Weak<dyn Follower>) {
        let mut followers = self.followers.lock();
        followers.retain(|known| known.strong_count() > 0);
        followers.push(follower);
    }

    /// Tells followers of changes. Only called by the background thread, with no lock held.
    pub(crate) fn tell(&self) {
        self.any.store(false, Ordering::SeqCst);
        let events = std::mem::take(&mut self.known.lock().events);
        let followers: Vec<_> = self.followers.lock().iter().filter_map(Weak::upgrade).collect();
        for follower in followers {
            follower.open_new_addresses();
            for (port, event) in &events {
                if Arc::ptr_eq(port, follower.port()) {
                    follower.raise_of_port(*event);
                }
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
