//! Ethernet addresses of neighbours, as the kernel knows them.
use adverb_device::Error;
use adverb_device::engine::Gid;
use adverb_device::interfaces::{self, ip_of};
use adverb_os::ethernet_address;
use nix::errno::Errno;
use std::net::IpAddr;

/// The Ethernet address behind a GID: from an interface of this host, from the kernel's table of
/// neighbours, or from the link-local address itself. `via` is the index of the interface of the
/// local GID.
pub(super) fn mac_of(via: u32, gid: &Gid) -> Result<[u8; 6], Error> {
    let ip = ip_of(gid);
    if let Some(own) = interfaces::usable()?.iter().find(|i| i.has(&ip)) {
        return Ok(own.mac);
    }
    let contained = match ip {
        IpAddr::V6(a) if a.is_unicast_link_local() => from_eui64(&a.octets()),
        _ => None,
    };
    contained.or_else(|| ethernet_address(ip, via)).ok_or_else(|| {
        Error::new(Errno::EHOSTUNREACH, format!("no Ethernet address of {ip} is known"))
    })
}

/// The Ethernet address contained in the modified EUI-64 of an IPv6 address.
fn from_eui64(a: &[u8; 16]) -> Option<[u8; 6]> {
    (a[11] == 0xff && a[12] == 0xfe).then(|| [a[8] ^ 2, a[9], a[10], a[13], a[14], a[15]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_give_their_mac() {
        let a: std::net::Ipv6Addr = "fe80::42:aff:fe00:2".parse().unwrap();
        assert_eq!(from_eui64(&a.octets()), Some([2, 0x42, 10, 0, 0, 2]));
        let a: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
        assert_eq!(from_eui64(&a.octets()), None);
    }
}
