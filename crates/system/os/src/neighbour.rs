//! Whether the kernel knows a way to an address on a link of this machine: its tables of routes and
//! neighbours.
//!
//! A destination behind a link is reached by the hardware address of the next hop, for which the
//! kernel asks (ARP, neighbour discovery) when something is sent there. Who answers no such
//! question gets no packet. What the kernel does not tell counts as known: packets find out.
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use crate::owner::ip_of;
use crate::sys::netlink;

/// Bytes of the fixed parts of messages, as the kernel's headers have them.
const RTMSG: usize = 12;
const NDMSG: usize = 12;
const IFINFOMSG: usize = 16;
/// Attribute of a neighbour: its address.
const NDA_DST: u16 = 1;
/// States in which a neighbour's hardware address is taken for right: reachable, stale, delay,
/// probe, no ARP, permanent.
const VALID: u16 = 0x02 | 0x04 | 0x08 | 0x10 | 0x40 | 0x80;
/// The port to which what makes the kernel ask is sent: discard (RFC 863).
const DISCARD: u16 = 9;

/// Has the kernel, for all that it says, what it needs to send packets to `destination`?
#[must_use]
pub fn neighbour_is_known(destination: SocketAddr) -> bool {
    match unknown(destination) {
        Ok(unknown) => !unknown,
        Err(error) => {
            log::debug!("the kernel does not say how {} is reached: {error}", destination.ip());
            true
        }
    }
}

/// Has the kernel look for the neighbour through which `destination` is reached from `source`.
pub fn ask_neighbour(source: IpAddr, destination: SocketAddr) {
    let scope = scope_of(destination);
    let at = |ip: IpAddr, port| match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(v6) => std::net::SocketAddrV6::new(v6, port, 0, scope).into(),
    };
    // An empty datagram that nobody answers; that it cannot be sent is what it is to find out.
    let sent = UdpSocket::bind(at(source, 0)).and_then(|socket| {
        socket.set_nonblocking(true)?;
        socket.send_to(&[], at(destination.ip(), DISCARD))
    });
    if let Err(error) = sent {
        log::debug!("{} is not asked for: {error}", destination.ip());
    }
}

fn unknown(destination: SocketAddr) -> io::Result<bool> {
    let Some((hop, interface)) = next_hop(destination)? else { return Ok(false) };
    if state(hop, interface)? & VALID != 0 {
        return Ok(false);
    }
    asks(interface)
}

/// The neighbour that packets are given to, and by which interface; `None`: they leave by no link,
/// or go to many.
fn next_hop(destination: SocketAddr) -> io::Result<Option<(IpAddr, u32)>> {
    let ip = destination.ip();
    let mut request = [0; RTMSG].to_vec();
    (request[0], request[1]) =
        if ip.is_ipv4() { (libc::AF_INET as u8, 32) } else { (libc::AF_INET6 as u8, 128) };
    attribute(&mut request, libc::RTA_DST, ip);
    if scope_of(destination) != 0 {
        request.extend_from_slice(&8u16.to_ne_bytes());
        request.extend_from_slice(&libc::RTA_OIF.to_ne_bytes());
        request.extend_from_slice(&scope_of(destination).to_ne_bytes());
    }
    let route = netlink::get(libc::NETLINK_ROUTE, libc::RTM_GETROUTE, &request)?;
    if route.get(7) != Some(&libc::RTN_UNICAST) {
        return Ok(None);
    }
    let (mut hop, mut interface) = (ip, None);
    for (kind, value) in netlink::attributes(route.get(RTMSG..).unwrap_or_default()) {
        match kind {
            libc::RTA_GATEWAY => hop = ip_of(value).unwrap_or(hop),
            libc::RTA_OIF => interface = value.first_chunk::<4>().map(|index| u32::from_ne_bytes(*index)),
            // A gateway of the other family.
            libc::RTA_VIA => return Ok(None),
            _ => {}
        }
    }
    Ok(interface.map(|interface| (hop, interface)))
}

/// The state of a neighbour; 0: it is in no table.
fn state(ip: IpAddr, interface: u32) -> io::Result<u16> {
    let mut request = [0; NDMSG].to_vec();
    request[0] = if ip.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 };
    request[4..8].copy_from_slice(&interface.to_ne_bytes());
    attribute(&mut request, NDA_DST, ip);
    match netlink::get(libc::NETLINK_ROUTE, libc::RTM_GETNEIGH, &request) {
        Ok(item) => {
            let state = item.get(8..10).and_then(|state| state.first_chunk::<2>());
            Ok(state.map_or(0, |state| u16::from_ne_bytes(*state)))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(0),
        Err(error) => Err(error),
    }
}

/// Do neighbours of an interface have hardware addresses that are asked for?
fn asks(interface: u32) -> io::Result<bool> {
    let mut request = [0; IFINFOMSG];
    request[4..8].copy_from_slice(&interface.to_ne_bytes());
    let link = netlink::get(libc::NETLINK_ROUTE, libc::RTM_GETLINK, &request)?;
    let flags = link.get(8..12).and_then(|flags| flags.first_chunk::<4>());
    let flags = flags.map_or(0, |flags| u32::from_ne_bytes(*flags)) as i32;
    Ok(flags & (libc::IFF_NOARP | libc::IFF_LOOPBACK | libc::IFF_POINTOPOINT) == 0)
}

fn attribute(request: &mut Vec<u8>, kind: u16, ip: IpAddr) {
    let mut put = |value: &[u8]| {
        request.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        request.extend_from_slice(&kind.to_ne_bytes());
        request.extend_from_slice(value);
    };
    match ip {
        IpAddr::V4(v4) => put(&v4.octets()),
        IpAddr::V6(v6) => put(&v6.octets()),
    }
}

fn scope_of(address: SocketAddr) -> u32 {
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
}
