//! The port of open devices. It follows the state, MTU and addresses of its interface.
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
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Entries of the GID table, including empty entries.
pub const GID_TABLE: usize = 16;

/// An object that is told of changes of a port.
pub(crate) trait Follower: Send + Sync {
    /// The port in question.
    fn port(&self) -> &Arc<Port>;
    /// New addresses may have come.
    fn open_new_addresses(&self);
    /// An event of the port.
    fn raise_of_port(&self, event: AsyncEvent);
}

/// The present state of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortState {
    /// The interface is up and has a carrier.
    pub up: bool,
    /// MTU of the interface in bytes.
    pub mtu: usize,
    /// Speed of the interface in Mbit/s.
    pub speed: u32,
    /// The GID table up to its last entry in use. Empty entries are zero.
    pub gids: Vec<Gid>,
}

impl PortState {
    pub(crate) fn of(interface: &Interface, table: &[Gid]) -> Self {
        PortState {
            up: interface.up,
            mtu: interface.mtu,
            speed: interface.speed,
            gids: merged(table, &interface.addresses),
        }
    }

    /// The largest path MTU with packets that fit.
    #[must_use]
    pub fn path_mtu(&self) -> PathMtu {
        PathMtu::for_interface(self.mtu)
    }
}

/// The port of an interface, shared by all contexts open on the interface.
#[derive(Debug)]
pub(crate) struct Port(RankedRw<PortState, ranks::Port>);

impl Port {
    pub(crate) fn state(&self) -> PortState {
        self.0.read().clone()
    }

    pub(crate) fn gid(&self, index: usize) -> Gid {
        self.0.read().gids.get(index).copied().unwrap_or_default()
    }

    pub(crate) fn path_mtu(&self) -> PathMtu {
        self.0.read().path_mtu()
    }

    /// Takes over the interface's state, `None` for a removed interface. Returns the events for
    /// programs.
    fn follow(&self, interface: Option<&Interface>) -> Vec<AsyncEvent> {
        let mut state = self.0.write();
        let new = match interface {
            Some(interface) => PortState::of(interface, &state.gids),
            None => PortState { up: false, gids: Vec::new(), ..state.clone() },
        };
        let mut events = Vec::new();
        if state.up && !new.up {
            events.push(AsyncEvent::PortErr);
        }
        if state.gids != new.gids {
            events.push(AsyncEvent::GidChange);
        }
        if !state.up && new.up {
            events.push(AsyncEvent::PortActive);
        }
        if interface.is_none() {
            events.push(AsyncEvent::DeviceFatal);
        }
        *state = new;
        events
    }
}

/// A table of these addresses. An address that is in `table` keeps its index.
pub(crate) fn merged(table: &[Gid], addresses: &[IpAddr]) -> Vec<Gid> {
    let wanted: Vec<Gid> = addresses.iter().take(GID_TABLE).map(gid_of).collect();
    let mut new: Vec<Gid> =
        table.iter().map(|gid| if wanted.contains(gid) { *gid } else { Gid::default() }).collect();
    for gid in wanted {
        if new.contains(&gid) {
            continue;
        }
        match new.iter_mut().find(|entry| entry.is_zero()) {
            Some(empty) => *empty = gid,
            None => new.push(gid),
        }
    }
    while new.last().is_some_and(Gid::is_zero) {
        new.pop();
    }
    new
}

/// Warns if another user has the UDP port. A program that only asks for attributes needs no UDP
/// port, but most programs that open a device go on to connect.
pub(crate) fn say_who_is_in_the_way(interface: &Interface) {
    for ip in &interface.addresses {
        if let Some(taken) = adverb_link::port_of_others(*ip) {
            log::warn!("nothing can be connected at adverb_{}: {taken}", interface.name);
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
    /// By index of the interface.
    ports: BTreeMap<u32, Arc<Port>>,
    /// The kernel's last list of interfaces. `None` after a change.
    interfaces: Option<Arc<[Interface]>>,
    events: Vec<(Arc<Port>, AsyncEvent)>,
}

impl Ports {
    /// All present interfaces, each with its GID table. Open ports follow changes. The background
    /// thread delivers the events.
    ///
    /// The kernel is asked for the interfaces at the first call, and if `news` has messages that
    /// the background thread has not taken yet. Otherwise the earlier list is valid.
    pub(crate) fn look(
        &self,
        news: Option<&InterfaceNews>,
    ) -> nix::Result<Vec<(Interface, Vec<Gid>)>> {
        let mut known = self.known.lock();
        if news.is_none_or(InterfaceNews::wait) {
            known.interfaces = None;
        }
        let found = self.found(&mut known)?;
        let table = |interface: &Interface| match known.ports.get(&interface.index) {
            Some(port) => port.state().gids,
            None => merged(&[], &interface.addresses),
        };
        Ok(found.iter().map(|interface| (interface.clone(), table(interface))).collect())
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
        known.ports.retain(|index, port| {
            let interface = found.iter().find(|i| i.index == *index);
            known
                .events
                .extend(port.follow(interface).into_iter().map(|event| (port.clone(), event)));
            interface.is_some()
        });
        if !known.events.is_empty() {
            self.any.store(true, Ordering::SeqCst);
        }
        known.interfaces = Some(found.clone());
        Ok(found)
    }

    /// The port of an interface, which follows the interface from now on. `first` is called if no
    /// other context has opened the port.
    pub(crate) fn open(
        &self,
        interface: &Interface,
        table: &[Gid],
        first: impl FnOnce(&Interface),
    ) -> Arc<Port> {
        let mut known = self.known.lock();
        let Known { ports, interfaces, .. } = &mut *known;
        let new = || {
            first(interface);
            // The caller's list may be old. The next look asks the kernel, and the port follows.
            *interfaces = None;
            Arc::new(Port(RankedRw::new(PortState::of(interface, table))))
        };
        ports.entry(interface.index).or_insert_with(new).clone()
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
mod tests {
    use super::*;

    fn gids(list: &[&str]) -> Vec<Gid> {
        list.iter()
            .map(|ip| if ip.is_empty() { Gid::default() } else { gid_of(&ip.parse().unwrap()) })
            .collect()
    }

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    #[test]
    fn sys_5_an_entry_keeps_its_place() {
        let table = merged(&[], &ips(&["fe80::1", "192.0.2.1", "2001:db8::1"]));
        assert_eq!(table, gids(&["fe80::1", "192.0.2.1", "2001:db8::1"]));
        // A new address goes behind the others, whatever its kind.
        let more = merged(&table, &ips(&["fe80::1", "192.0.2.1", "192.0.2.2", "2001:db8::1"]));
        assert_eq!(more, gids(&["fe80::1", "192.0.2.1", "2001:db8::1", "192.0.2.2"]));
        // A removed address leaves its entry to the next new address.
        let less = merged(&more, &ips(&["fe80::1", "192.0.2.2", "2001:db8::1"]));
        assert_eq!(less, gids(&["fe80::1", "", "2001:db8::1", "192.0.2.2"]));
        let filled = merged(&less, &ips(&["fe80::1", "192.0.2.9", "192.0.2.2", "2001:db8::1"]));
        assert_eq!(filled, gids(&["fe80::1", "192.0.2.9", "2001:db8::1", "192.0.2.2"]));
        assert_eq!(merged(&less, &[]), gids(&[]));
        let many: Vec<IpAddr> = (0..40).map(|n| IpAddr::from([192, 0, 2, n])).collect();
        assert_eq!(merged(&less, &many).len(), GID_TABLE);
    }

    #[test]
    fn sys_5_each_change_has_its_event() {
        let mut interface = Interface {
            name: "x".into(),
            index: 7,
            mtu: 1500,
            mac: [0; 6],
            loopback: false,
            speed: 10_000,
            up: true,
            addresses: ips(&["192.0.2.1"]),
        };
        let ports = Ports::default();
        let port = ports.open(&interface, &[], |_| ());
        assert_eq!(port.follow(Some(&interface)), []);
        interface.mtu = 9000;
        assert_eq!((port.follow(Some(&interface)), port.path_mtu()), (vec![], PathMtu::Mtu4096));
        interface.up = false;
        assert_eq!(port.follow(Some(&interface)), [AsyncEvent::PortErr]);
        interface.addresses = ips(&["192.0.2.2"]);
        assert_eq!(port.follow(Some(&interface)), [AsyncEvent::GidChange]);
        interface.up = true;
        assert_eq!(port.follow(Some(&interface)), [AsyncEvent::PortActive]);
        let all = [AsyncEvent::PortErr, AsyncEvent::GidChange, AsyncEvent::DeviceFatal];
        assert_eq!(port.follow(None), all);
        assert_eq!(port.state(), PortState { up: false, mtu: 9000, speed: 10_000, gids: vec![] });
    }
    #[test]
    fn sys_5_the_kernel_is_asked_again_for_a_port_that_is_new() {
        let news = InterfaceNews::new().unwrap();
        let ports = Ports::default();
        let of = |found: &[(Interface, Vec<Gid>)]| {
            found.iter().map(|(i, _)| i.index).collect::<Vec<_>>()
        };
        let found = ports.look(Some(&news)).unwrap();
        let again = ports.look(Some(&news)).unwrap();
        assert_eq!(of(&found), of(&again));
        // The program's list shows the loopback interface as down. The port follows the kernel.
        let (real, _) = found.into_iter().find(|(i, _)| i.loopback && i.up).unwrap();
        let port = ports.open(&Interface { up: false, ..real }, &[], |_| ());
        assert!(!port.state().up);
        ports.look(Some(&news)).unwrap();
        assert!(port.state().up);
    }
}
