//! The machine's network interfaces, with the properties that a device needs.
use adverb_os::{Detection, LinkInfo};
use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The speed of the loopback interface in Mbit/s: 4x EDR.
const LOOPBACK_SPEED: u32 = 100_000;
/// The speed of another interface, if its driver reports none.
const UNKNOWN_SPEED: u32 = 10_000;

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Kernel name.
    pub name: String,
    /// Kernel index.
    pub index: u32,
    /// MTU in bytes.
    pub mtu: usize,
    /// Hardware address, or zero.
    pub mac: [u8; 6],
    /// Is this the loopback interface?
    pub loopback: bool,
    /// Speed in Mbit/s; see `speed_of`.
    pub speed: u32,
    /// Is the interface up, with a carrier?
    pub up: bool,
    /// Does the interface lead to other hosts? See `leads_out`.
    pub outward: bool,
    /// Addresses in the order of the GID table: IPv4 first, then IPv6 link-local, then other IPv6
    /// addresses.
    pub addresses: Vec<IpAddr>,
}

impl Interface {
    /// Is the interface up, with an address?
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.up && !self.addresses.is_empty()
    }

    /// An interface of a machine that tests describe. Index 1 is loopback.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn described(index: u32, name: &str, addresses: &[&str]) -> Interface {
        Interface {
            name: name.into(),
            index,
            mtu: 1500,
            mac: [0; 6],
            loopback: index == 1,
            speed: 10_000,
            up: true,
            outward: index > 1,
            addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        }
    }

    /// Does the kernel take packets for this address at the interface? Loopback has all of
    /// 127.0.0.0/8, and lists only some of these addresses.
    #[must_use]
    pub fn has(&self, ip: &IpAddr) -> bool {
        let is_unlisted = |own: &IpAddr| own.is_ipv4() && own.is_loopback();
        self.addresses.contains(ip)
            || self.loopback && is_unlisted(ip) && self.addresses.iter().any(is_unlisted)
    }
}

/// All usable interfaces, in the order of [`all`].
///
/// # Errors
/// The errno of `getifaddrs`.
pub fn usable() -> nix::Result<Vec<Interface>> {
    let mut found = all()?;
    found.retain(Interface::is_usable);
    Ok(found)
}

/// All interfaces. The order is: interfaces that lead out, interfaces of this host alone, loopback.
/// Among interfaces of the same rank, those that are up come first, then the interface of the
/// default route.
///
/// An address under IPv6 duplicate address detection is listed, and its users wait
/// (`Context::resolve`). An address that another host has is not listed.
///
/// # Errors
/// The errno of `getifaddrs`.
pub fn all() -> nix::Result<Vec<Interface>> {
    let mut found: Vec<Interface> = Vec::new();
    let links = adverb_os::links().unwrap_or_default();
    let unusable = adverb_os::unusable_addresses().unwrap_or_default();
    let is_duplicate = |on: u32, ip: Ipv6Addr| unusable.contains(&(on, ip, Detection::Duplicate));
    for entry in getifaddrs()? {
        let Some(address) = entry.address else { continue };
        // An IPv4 address may carry a label, "eth0:1". No interface name contains a colon.
        let name = entry.interface_name.split(':').next().unwrap_or_default();
        let slot = match found.iter().position(|i| i.name == name) {
            Some(p) => &mut found[p],
            None => {
                found.push(describe(name, entry.flags, &links));
                found.last_mut().expect("just pushed")
            }
        };
        if let Some(v4) = address.as_sockaddr_in() {
            slot.addresses.push(IpAddr::V4(v4.ip()));
        } else if let Some(v6) = address.as_sockaddr_in6() {
            if is_duplicate(slot.index, v6.ip()) {
                continue;
            }
            slot.addresses.push(IpAddr::V6(v6.ip()));
        } else if let Some(link) = address.as_link_addr() {
            slot.mac = link.addr().unwrap_or_default();
            if slot.index == 0 {
                slot.index = u32::try_from(link.ifindex()).unwrap_or(0);
            }
        }
    }
    let routed = adverb_os::outward_addresses();
    for i in &mut found {
        i.addresses.sort_by_key(rank);
        i.addresses.dedup();
        i.outward = leads_out(i, &links, routed.iter().any(|ip| i.addresses.contains(ip)));
    }
    let route = |i: &Interface| routed.iter().position(|ip| i.addresses.contains(ip));
    found.sort_by_key(|i| {
        (i.loopback, !i.outward, !i.up, route(i).unwrap_or(routed.len()), i.index)
    });
    Ok(found)
}

/// Does an interface lead to other hosts? `routed`: the default route leaves through it.
///
/// A bridge of this host alone (`docker0`, `virbr0`) has only virtual machines and containers of
/// this host at its ports, and often the same address on every host.
fn leads_out(interface: &Interface, links: &BTreeMap<u32, LinkInfo>, routed: bool) -> bool {
    let link = links.get(&interface.index).cloned().unwrap_or_default();
    let master = link.master.and_then(|index| links.get(&index));
    // The port of a bridge or a bond has no addresses of its own. The port of a VRF has.
    if interface.loopback || master.is_some_and(|master| master.kind != "vrf") {
        return false;
    }
    let is_remote = |port: &LinkInfo| !["veth", "tun", "dummy"].contains(&&*port.kind);
    routed
        || match &*link.kind {
            "bridge" => links.values().any(|l| l.master == Some(interface.index) && is_remote(l)),
            "dummy" | "ifb" | "vrf" => false,
            // The host's end of a container's cable has a link-local address alone.
            "veth" => interface
                .addresses
                .iter()
                .any(|ip| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())),
            _ => true,
        }
}

/// Order within the GID table.
fn rank(ip: &IpAddr) -> u8 {
    match ip {
        IpAddr::V4(_) => 0,
        IpAddr::V6(a) if a.is_unicast_link_local() => 1,
        IpAddr::V6(_) => 2,
    }
}

fn describe(name: &str, flags: InterfaceFlags, links: &BTreeMap<u32, LinkInfo>) -> Interface {
    let index = nix::net::if_::if_nametoindex(name).unwrap_or(0);
    let read = |what: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/{what}")).ok();
    let shown = || read("mtu").and_then(|s| s.trim().parse().ok());
    let mtu = links.get(&index).map(|link| link.mtu).or_else(shown).unwrap_or(1500);
    let loopback = flags.contains(InterfaceFlags::IFF_LOOPBACK);
    let reported = read("speed").and_then(|s| s.trim().parse().ok());
    Interface {
        name: name.to_owned(),
        index,
        mtu,
        mac: [0; 6],
        loopback,
        speed: speed_of(reported, loopback),
        up: flags.contains(InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING),
        outward: false,
        addresses: Vec::new(),
    }
}

/// The speed of an interface in Mbit/s. `reported` is the driver's value from
/// `/sys/class/net/NAME/speed`.
///
/// Programs choose their protocols by the speed. Loopback reports none, and its data goes through
/// shared memory, so loopback counts as 100 Gbit/s. A driver that knows no speed reports nothing or
/// -1. Such an interface counts as 10 Gbit/s, as the kernel reports for a veth.
fn speed_of(reported: Option<i64>, loopback: bool) -> u32 {
    let known = reported.and_then(|mbit| u32::try_from(mbit).ok()).filter(|mbit| *mbit > 0);
    known.unwrap_or(if loopback { LOOPBACK_SPEED } else { UNKNOWN_SPEED })
}

/// The IP address of a GID.
#[must_use]
pub fn ip_of(gid: &adverb_engine::Gid) -> IpAddr {
    match gid.ipv4() {
        Some(v4) => IpAddr::V4(Ipv4Addr::from(v4)),
        None => IpAddr::V6(Ipv6Addr::from(gid.0)),
    }
}

/// The GID of an IP address.
#[must_use]
pub fn gid_of(ip: &IpAddr) -> adverb_engine::Gid {
    match ip {
        IpAddr::V4(a) => adverb_engine::Gid::from_ipv4(a.octets()),
        IpAddr::V6(a) => adverb_engine::Gid(a.octets()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_as_fast_as_what_carries_its_packets() {
        assert_eq!(speed_of(None, true), 100_000);
        assert_eq!(speed_of(None, false), 10_000);
        assert_eq!(speed_of(Some(-1), false), 10_000);
        assert_eq!(speed_of(Some(0), false), 10_000);
        assert_eq!(speed_of(Some(25_000), false), 25_000);
        assert_eq!(speed_of(Some(i64::MAX), false), 10_000);
    }

    /// SYS-12: which interfaces lead to other hosts.
    #[test]
    fn sys_12_a_bridge_of_this_host_alone_does_not_lead_out() {
        let link = |kind: &str, master| LinkInfo { mtu: 1500, kind: kind.into(), master };
        let mut links = BTreeMap::from([
            (1, link("", None)),
            (2, link("", None)),
            (3, link("bridge", None)),
            (4, link("veth", Some(3))),
            (5, link("bridge", None)),
            (6, link("", Some(5))),
            (7, link("veth", None)),
            (8, link("vlan", None)),
            (9, link("dummy", None)),
            (10, link("vrf", None)),
            (11, link("", Some(10))),
        ]);
        let interface =
            |index: u32, address: &str| Interface::described(index, &index.to_string(), &[address]);
        let lead = |links: &_| -> Vec<u32> {
            (1..=11).filter(|i| leads_out(&interface(*i, "192.0.2.1"), links, false)).collect()
        };
        assert_eq!(lead(&links), [2, 5, 7, 8, 11]);
        assert!(leads_out(&interface(3, "192.0.2.1"), &links, true), "the default route's bridge");
        assert!(!leads_out(&interface(7, "fe80::1"), &links, false), "a container's cable");
        assert!(leads_out(&interface(2, "fe80::1"), &links, false), "hardware");
        links.insert(4, link("vxlan", Some(3)));
        assert!(leads_out(&interface(3, "192.0.2.1"), &links, false), "a bridge with a way out");
    }
}
