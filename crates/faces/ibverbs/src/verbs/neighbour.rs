//! Ethernet addresses of neighbours, as the kernel knows them.
use adverb_device::Error;
use adverb_device::engine::Gid;
use adverb_device::interfaces::{self, ip_of, is_link_local};
use nix::errno::Errno;
use std::net::IpAddr;

/// The Ethernet address behind a GID: from an interface of this host, from the kernel's ARP table,
/// or from the link-local address itself. `via` is the index of the interface of the local GID.
pub(super) fn mac_of(via: u32, gid: &Gid) -> Result<[u8; 6], Error> {
    let ip = ip_of(gid);
    let here = interfaces::usable()?;
    if let Some(own) = here.iter().find(|i| i.has(&ip)) {
        return Ok(own.mac);
    }
    let name = here.iter().find(|i| i.index == via).map_or("", |i| &i.name);
    let found = match ip {
        IpAddr::V4(_) => std::fs::read_to_string("/proc/net/arp")
            .ok()
            .and_then(|table| from_arp(&table, ip, name)),
        IpAddr::V6(a) if is_link_local(&a) => from_eui64(&a.octets()),
        IpAddr::V6(_) => None,
    };
    found.ok_or_else(|| {
        Error::new(Errno::EHOSTUNREACH, format!("no Ethernet address of {ip} is known"))
    })
}

/// Looks up an address in the text of `/proc/net/arp`. Its columns are IP, type, flags, hardware
/// address, mask and interface.
fn from_arp(table: &str, ip: IpAddr, interface: &str) -> Option<[u8; 6]> {
    const COMPLETE: u32 = 2;
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [address, _, flags, mac, _, name] = fields[..] else { return None };
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()?;
        if address.parse::<IpAddr>().ok()? != ip || name != interface || flags & COMPLETE == 0 {
            return None;
        }
        let mut bytes = mac.split(':').map(|b| u8::from_str_radix(b, 16));
        let mut out = [0; 6];
        for byte in &mut out {
            *byte = bytes.next()?.ok()?;
        }
        Some(out)
    })
}

/// The Ethernet address contained in the modified EUI-64 of an IPv6 address.
fn from_eui64(a: &[u8; 16]) -> Option<[u8; 6]> {
    (a[11] == 0xff && a[12] == 0xfe).then(|| [a[8] ^ 2, a[9], a[10], a[13], a[14], a[15]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARP: &str = "IP address       HW type     Flags       HW address            Mask     Device\n\
                       10.0.0.2         0x1         0x2         02:42:0a:00:00:02     *        eth0\n\
                       10.0.0.3         0x1         0x0         00:00:00:00:00:00     *        eth0\n";

    #[test]
    fn arp_entries_are_found_by_address_and_interface() {
        let ip = |s: &str| s.parse::<IpAddr>().unwrap();
        assert_eq!(from_arp(ARP, ip("10.0.0.2"), "eth0"), Some([2, 0x42, 10, 0, 0, 2]));
        assert_eq!(from_arp(ARP, ip("10.0.0.2"), "eth1"), None);
        assert_eq!(from_arp(ARP, ip("10.0.0.3"), "eth0"), None, "an incomplete entry");
    }

    #[test]
    fn link_local_addresses_give_their_mac() {
        let a: std::net::Ipv6Addr = "fe80::42:aff:fe00:2".parse().unwrap();
        assert_eq!(from_eui64(&a.octets()), Some([2, 0x42, 10, 0, 0, 2]));
        let a: std::net::Ipv6Addr = "fe80::1".parse().unwrap();
        assert_eq!(from_eui64(&a.octets()), None);
    }
}
