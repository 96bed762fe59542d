//! Whether the kernel knows a way to an address on a link of this machine, by the tables of routes
//! and neighbours.
//!
//! To send to a destination behind a link, the kernel needs the hardware address of the next hop.
//! The kernel asks for this address (ARP, neighbour discovery) when a packet is sent there. A host
//! that does not answer gets no packet. If the kernel gives no information, the neighbour counts as
//! known: sending packets will tell.
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use libc::{NUD_DELAY, NUD_NOARP, NUD_PERMANENT, NUD_PROBE, NUD_REACHABLE, NUD_STALE};

use crate::owner::ip_of;
use crate::sys::netlink::{self, IFINFOMSG, RTMSG};

/// Bytes of the fixed part of a message about a neighbour, as in the kernel's headers.
const NDMSG: usize = 12;
/// States of a neighbour: asked for, without an answer, and all with a usable hardware address.
const INCOMPLETE: u16 = libc::NUD_INCOMPLETE;
const FAILED: u16 = libc::NUD_FAILED;
const VALID: u16 = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_NOARP | NUD_PERMANENT;
/// The first pause between two looks at the state of a neighbour.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// The longest of these pauses.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// The port for packets that make the kernel ask: discard (RFC 863).
const DISCARD: u16 = 9;

/// Whether the kernel has everything needed to send packets to `destination`, as far as it says.
#[must_use]
pub fn neighbour_is_known(destination: SocketAddr) -> bool {
    unknown(destination).is_none()
}

/// Makes the kernel look for the neighbour on the way from `source` to `destination`. `false`: the
/// kernel refuses.
pub fn ask_neighbour(source: IpAddr, destination: SocketAddr) -> bool {
    // A failed send only means that the neighbour is unreachable.
    let asked = toward(source, destination).and_then(|socket| socket.send(&[]));
    asked.inspect_err(|e| log::debug!("{} is not asked for: {e}", destination.ip())).is_ok()
}

/// Why no packet can reach a destination, by the kernel's answer.
#[derive(Debug)]
pub enum NoWay {
    /// No route of this machine leads there.
    NoRoute(io::Error),
    /// The next hop, with this address, has not answered the kernel's requests for its hardware
    /// address.
    Silent(IpAddr),
}

/// Waits until the kernel has everything needed to send packets from `source` to `destination`. If
/// the neighbour on the way is not known, the kernel asks the link. The wait ends with the answer,
/// or when the kernel gives up: after three requests, one second apart, unless its settings differ.
///
/// # Errors
/// The kernel has no route, or no neighbour has answered.
pub fn find_neighbour(source: IpAddr, destination: SocketAddr) -> Result<(), NoWay> {
    let Some((hop, interface)) = unknown_from(source, destination)? else { return Ok(()) };
    if !ask_neighbour(source, destination) {
        return Ok(());
    }
    let mut pause = FIRST_PAUSE;
    loop {
        match state(hop, interface) {
            Ok(INCOMPLETE) => std::thread::sleep(pause),
            Ok(FAILED) => return Err(NoWay::Silent(hop)),
            // The kernel knows the neighbour, or gives no information: sending packets will tell.
            _ => return Ok(()),
        }
        pause = LONGEST_PAUSE.min(pause * 2);
    }
}

/// What the kernel says now about the way from `source` to `destination`, without a request to the
/// link: `Some` if it has no route, or has given up the neighbour.
#[must_use]
pub fn no_way_now(source: IpAddr, destination: SocketAddr) -> Option<NoWay> {
    match unknown_from(source, destination) {
        Ok(Some((hop, interface))) => {
            let failed = state(hop, interface).is_ok_and(|state| state == FAILED);
            failed.then_some(NoWay::Silent(hop))
        }
        Ok(None) => None,
        Err(no_way) => Some(no_way),
    }
}

/// As [`unknown`], for packets from `source`.
fn unknown_from(source: IpAddr, destination: SocketAddr) -> Result<Option<(IpAddr, u32)>, NoWay> {
    if let Err(error) = toward(source, destination) {
        return match error.raw_os_error() {
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => Err(NoWay::NoRoute(error)),
            _ => Ok(None),
        };
    }
    Ok(unknown(destination))
}

/// A socket for datagrams from `source` to `destination`, which get no answer. The kernel looks up
/// the route here.
fn toward(source: IpAddr, destination: SocketAddr) -> io::Result<UdpSocket> {
    let scope = scope_in(destination);
    let at = |ip: IpAddr, port| match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => std::net::SocketAddrV6::new(v6, port, 0, scope).into(),
    };
    let socket = UdpSocket::bind(at(source, 0))?;
    socket.set_nonblocking(true)?;
    socket.connect(at(destination.ip(), DISCARD))?;
    Ok(socket)
}

/// The next hop to a destination and its interface, if the kernel does not know the hop's hardware
/// address. `None` also if the kernel does not answer.
fn unknown(destination: SocketAddr) -> Option<(IpAddr, u32)> {
    let look = || -> io::Result<_> {
        let Some((hop, interface)) = next_hop(destination)? else { return Ok(None) };
        let unknown = state(hop, interface)? & VALID == 0 && asks(interface)?;
        Ok(unknown.then_some((hop, interface)))
    };
    look().unwrap_or_else(|error| {
        log::debug!("the kernel does not say how {} is reached: {error}", destination.ip());
        None
    })
}

/// The next hop of packets, and the interface to it. `None`: the packets leave through no link, or
/// go to many hosts.
fn next_hop(destination: SocketAddr) -> io::Result<Option<(IpAddr, u32)>> {
    let ip = destination.ip();
    let mut request = [0; RTMSG].to_vec();
    let (family, bytes) = netlink::parts_of(ip);
    (request[0], request[1]) = (family, 8 * bytes.len() as u8);
    netlink::put_attribute(&mut request, libc::RTA_DST, &bytes);
    if scope_in(destination) != 0 {
        netlink::put_attribute(&mut request, libc::RTA_OIF, &scope_in(destination).to_ne_bytes());
    }
    let route = netlink::get(libc::NETLINK_ROUTE, libc::RTM_GETROUTE, &request)?;
    if route.get(7) != Some(&libc::RTN_UNICAST) {
        return Ok(None);
    }
    let (mut hop, mut interface) = (ip, None);
    for (kind, value) in netlink::attributes(route.get(RTMSG..).unwrap_or_default()) {
        match kind {
            libc::RTA_GATEWAY => hop = ip_of(value).unwrap_or(hop),
            libc::RTA_OIF => interface = netlink::word(value),
            // A gateway of the other address family.
            libc::RTA_VIA => return Ok(None),
            _ => {}
        }
    }
    Ok(interface.map(|interface| (hop, interface)))
}

/// The state of a neighbour; 0 if no table contains it.
fn state(ip: IpAddr, interface: u32) -> io::Result<u16> {
    let entry = entry(ip, interface)?;
    let state = entry.get(8..10).and_then(|state| state.first_chunk::<2>());
    Ok(state.map_or(0, |state| u16::from_ne_bytes(*state)))
}

/// The kernel's entry for a neighbour. Empty if no table contains it.
fn entry(ip: IpAddr, interface: u32) -> io::Result<Vec<u8>> {
    let mut request = [0; NDMSG].to_vec();
    let (family, bytes) = netlink::parts_of(ip);
    request[0] = family;
    request[4..8].copy_from_slice(&interface.to_ne_bytes());
    netlink::put_attribute(&mut request, libc::NDA_DST, &bytes);
    match netlink::get(libc::NETLINK_ROUTE, libc::RTM_GETNEIGH, &request) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(Vec::new()),
        answer => answer,
    }
}

/// The Ethernet address of a neighbour on an interface, as the kernel knows it. `None`: the kernel
/// does not know the address, or the address is not one of Ethernet.
#[must_use]
pub fn ethernet_address(ip: IpAddr, interface: u32) -> Option<[u8; 6]> {
    let entry = entry(ip, interface).ok()?;
    let state = u16::from_ne_bytes(*entry.get(8..10)?.first_chunk::<2>()?);
    let mut attributes = netlink::attributes(entry.get(NDMSG..)?);
    let (_, address) = attributes.find(|(kind, _)| *kind == libc::NDA_LLADDR)?;
    (state & VALID != 0).then_some(address.try_into().ok()?)
}

/// Whether the kernel asks for hardware addresses of neighbours on an interface.
fn asks(interface: u32) -> io::Result<bool> {
    let mut request = [0; IFINFOMSG];
    request[4..8].copy_from_slice(&interface.to_ne_bytes());
    let link = netlink::get(libc::NETLINK_ROUTE, libc::RTM_GETLINK, &request)?;
    let flags = link.get(8..).and_then(netlink::word).unwrap_or_default();
    Ok(flags.cast_signed() & (libc::IFF_NOARP | libc::IFF_LOOPBACK | libc::IFF_POINTOPOINT) == 0)
}

/// The interface in an address; 0 if the address names none.
#[must_use]
pub fn scope_in(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_are_known() {
        for address in ["127.0.0.1:1", "[::1]:1", "127.8.9.10:1"] {
            let address = address.parse().unwrap();
            assert_eq!(next_hop(address).unwrap_or(None), None, "{address} leaves by no link");
            assert!(neighbour_is_known(address), "{address}");
        }
    }

    #[test]
    fn ethernet_addresses_are_those_of_the_kernels_arp_table() {
        assert_eq!(ethernet_address("127.0.0.1".parse().unwrap(), 1), None);
        let table = std::fs::read_to_string("/proc/net/arp").unwrap_or_default();
        for line in table.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [ip, _, "0x2", mac, _, interface] = fields[..] else { continue };
            let index = std::fs::read_to_string(format!("/sys/class/net/{interface}/ifindex"));
            let index = index.unwrap().trim().parse().unwrap();
            let found = ethernet_address(ip.parse().unwrap(), index).expect("an entry");
            assert_eq!(found.map(|byte| format!("{byte:02x}")).join(":"), mac);
        }
    }
}
