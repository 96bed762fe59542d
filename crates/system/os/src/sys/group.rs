//! Socket options for multicast groups.
use super::raw::set_value;
use super::{Fd, set_option};
use libc::c_int;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// `IPV6_MULTICAST_ALL` (linux/in6.h, since 4.20).
const IPV6_MULTICAST_ALL: c_int = 29;

/// Joins a multicast group on an interface. The socket receives no group joined only by other
/// sockets.
pub fn join_group(fd: &Fd, group: IpAddr, interface: u32) -> io::Result<()> {
    match group {
        IpAddr::V4(v4) => {
            let request = request(v4, interface);
            set_value(fd.raw(), libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)?;
        }
        IpAddr::V6(v6) => {
            let request = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr { s6_addr: v6.octets() },
                ipv6mr_interface: interface,
            };
            set_value(fd.raw(), libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)?;
        }
    }
    no_groups(fd, group.is_ipv6());
    Ok(())
}

/// Makes a socket receive nothing of groups joined only by other sockets.
pub fn no_groups(fd: &Fd, v6: bool) {
    // Kernels before 4.20 do not have the option for IPv6. There a packet arrives twice if two
    // interfaces have joined the group.
    let _ = match v6 {
        true => set_option(fd, libc::IPPROTO_IPV6, IPV6_MULTICAST_ALL, 0),
        false => set_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0),
    };
}

/// Selects the interface for a socket's multicast packets.
pub fn multicast_interface(fd: &Fd, v6: bool, interface: u32) -> io::Result<()> {
    if v6 {
        return set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_IF, interface as c_int);
    }
    let request = request(Ipv4Addr::UNSPECIFIED, interface);
    set_value(fd.raw(), libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
}

/// The kernel's structure for a group of IPv4 on an interface.
fn request(group: Ipv4Addr, interface: u32) -> libc::ip_mreqn {
    let address = |ip: Ipv4Addr| libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) };
    let (imr_multiaddr, imr_address) = (address(group), address(Ipv4Addr::UNSPECIFIED));
    libc::ip_mreqn { imr_multiaddr, imr_address, imr_ifindex: interface as c_int }
}
