//! The machine's interfaces in this network namespace, as reported by the kernel. `/sys/class/net`
//! may show another namespace.
use crate::sys::netlink::{self, IFINFOMSG};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, UdpSocket};

pub use netlink::InterfaceNews;

/// What the kernel says of an interface, beside its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkInfo {
    /// MTU in bytes.
    pub mtu: usize,
    /// The kind of a virtual interface, for example `bridge` or `veth`. Empty for hardware.
    pub kind: String,
    /// Index of the bridge, bond or VRF with this interface as a port.
    pub master: Option<u32>,
}

/// What the kernel says of each interface, by index.
///
/// # Errors
/// The kernel does not answer.
pub fn links() -> io::Result<BTreeMap<u32, LinkInfo>> {
    let mut found = BTreeMap::new();
    netlink::dump(libc::NETLINK_ROUTE, libc::RTM_GETLINK, &[0; IFINFOMSG], &mut |item| {
        let Some(index) = item.get(4..).and_then(netlink::word) else { return };
        let mut link = LinkInfo::default();
        for (kind, value) in netlink::attributes(item.get(IFINFOMSG..).unwrap_or_default()) {
            match kind {
                libc::IFLA_MTU => link.mtu = netlink::word(value).unwrap_or_default() as usize,
                libc::IFLA_MASTER => link.master = netlink::word(value),
                libc::IFLA_LINKINFO => link.kind = kind_of(value),
                _ => {}
            }
        }
        found.insert(index, link);
    })?;
    Ok(found)
}

/// The kind in the nested attributes of `IFLA_LINKINFO`.
fn kind_of(info: &[u8]) -> String {
    let kind = netlink::attributes(info).find(|(kind, _)| *kind == libc::IFLA_INFO_KIND);
    let text = kind.map_or(&[][..], |(_, value)| value.split(|b| *b == 0).next().unwrap_or(value));
    String::from_utf8_lossy(text).into_owned()
}

/// Addresses outside of every machine, one of each family. No packet is sent to them. They are in
/// blocks that IANA gives to no network.
const OUTSIDE: [(&str, &str); 2] = [("0.0.0.0:0", "192.88.99.1:9"), ("[::]:0", "[3ffe::1]:9")];

/// The local addresses from which the kernel reaches addresses outside: by the default route of
/// each family, IPv4 first. Empty without a default route.
#[must_use]
pub fn outward_addresses() -> Vec<IpAddr> {
    let toward = |(from, to): (&str, &str)| {
        let socket = UdpSocket::bind(from).ok()?;
        // Connecting a UDP socket asks for a route, and sends nothing.
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip())
    };
    OUTSIDE.into_iter().filter_map(toward).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_mtu() {
        let said = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        let lo = links().unwrap().remove(&1).unwrap();
        let mtu = said.trim().parse().unwrap();
        assert_eq!(lo, LinkInfo { mtu, kind: String::new(), master: None });
    }

    #[test]
    fn no_news_is_told_as_none() {
        let news = InterfaceNews::new().unwrap();
        // Another process may change an interface now and then, but not all the time.
        assert!((0..1000).any(|_| !news.take()));
    }
}
