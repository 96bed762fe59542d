//! The machine's interfaces in this network namespace, as reported by the kernel. `/sys/class/net`
//! may show another namespace.
use crate::sys::netlink;
use std::collections::BTreeMap;
use std::io;

/// Bytes before the attributes of an answer: `ifinfomsg`.
const IFINFOMSG: usize = 16;

pub use netlink::InterfaceNews;

/// The MTU of each interface, by index.
///
/// # Errors
/// The kernel does not answer.
pub fn interface_mtus() -> io::Result<BTreeMap<u32, usize>> {
    let mut found = BTreeMap::new();
    netlink::dump(libc::NETLINK_ROUTE, libc::RTM_GETLINK, &[0; IFINFOMSG], &mut |item| {
        let word = |bytes: &[u8]| bytes.first_chunk::<4>().map(|b| u32::from_ne_bytes(*b));
        let index = item.get(4..).and_then(word);
        let mut attributes = netlink::attributes(item.get(IFINFOMSG..).unwrap_or_default());
        let mtu =
            attributes.find(|(kind, _)| *kind == libc::IFLA_MTU).and_then(|(_, value)| word(value));
        if let (Some(index), Some(mtu)) = (index, mtu) {
            found.insert(index, mtu as usize);
        }
    })?;
    Ok(found)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_has_its_mtu() {
        let said = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        assert_eq!(interface_mtus().unwrap().get(&1), Some(&said.trim().parse().unwrap()));
    }

    #[test]
    fn no_news_is_told_as_none() {
        let news = InterfaceNews::new().unwrap();
        // Another process may change an interface now and then, but not all the time.
        assert!((0..1000).any(|_| !news.take()));
    }
}
