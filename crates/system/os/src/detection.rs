//! IPv6 duplicate address detection (RFC 4862, 5.4), as reported by the kernel.
//!
//! A new IPv6 address is tentative for one to two seconds: the kernel asks the link whether another
//! host has the address. No socket can be bound to the address meanwhile.
use std::io;
use std::net::Ipv6Addr;

use crate::sys::netlink;

/// Bytes before the attributes of an answer: `ifaddrmsg`.
pub const IFADDRMSG: usize = 8;

/// The state of duplicate address detection for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detection {
    /// The address can be used.
    Passed,
    /// Detection is under way, or waits for a carrier.
    Tentative,
    /// Another host has the address. This machine does not use the address.
    Duplicate,
}

impl Detection {
    /// The state by the flags of an address (`ifa_flags`).
    pub fn of_flags(flags: u8) -> Detection {
        let has = |flag: u32| u32::from(flags) & flag != 0;
        if has(libc::IFA_F_DADFAILED) {
            Detection::Duplicate
        } else if has(libc::IFA_F_TENTATIVE) && !has(libc::IFA_F_OPTIMISTIC) {
            Detection::Tentative
        } else {
            Detection::Passed
        }
    }

    /// The state by an item of an address dump: an `ifaddrmsg` and its attributes.
    pub fn of_item(item: &[u8]) -> Detection {
        item.get(2).map_or(Detection::Passed, |flags| Detection::of_flags(*flags))
    }
}

/// The currently unusable IPv6 addresses of this network namespace, each with the index of its
/// interface.
///
/// # Errors
/// The kernel does not answer.
pub fn unusable_addresses() -> io::Result<Vec<(u32, Ipv6Addr, Detection)>> {
    let mut found = Vec::new();
    let mut request = [0; IFADDRMSG];
    request[0] = libc::AF_INET6 as u8;
    netlink::dump(libc::NETLINK_ROUTE, libc::RTM_GETADDR, &request, &mut |item| {
        let detection = Detection::of_item(item);
        let index = item.get(4..).and_then(netlink::word);
        let mut attributes = netlink::attributes(item.get(IFADDRMSG..).unwrap_or_default());
        let address = attributes.find(|(kind, _)| *kind == libc::IFA_ADDRESS);
        let address = address.and_then(|(_, value)| value.first_chunk::<16>());
        if let (Some(index), Some(address)) = (index, address)
            && detection != Detection::Passed
        {
            found.push((index, Ipv6Addr::from(*address), detection));
        }
    })?;
    Ok(found)
}

/// Whether detection is under way for this address on any interface. `false` if the kernel does not
/// answer.
pub fn is_tentative(ip: &Ipv6Addr) -> bool {
    let is = |(_, address, detection): &(u32, Ipv6Addr, Detection)| {
        address == ip && *detection == Detection::Tentative
    };
    unusable_addresses().is_ok_and(|found| found.iter().any(is))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sys_5_flags_tell_how_far_detection_is() {
        let of = |flags: u32| Detection::of_flags(flags as u8);
        let (tentative, failed) = (libc::IFA_F_TENTATIVE, libc::IFA_F_DADFAILED);
        assert_eq!(of(libc::IFA_F_PERMANENT), Detection::Passed);
        assert_eq!(of(tentative | libc::IFA_F_PERMANENT), Detection::Tentative);
        assert_eq!(of(tentative | libc::IFA_F_OPTIMISTIC), Detection::Passed);
        assert_eq!(of(tentative | failed), Detection::Duplicate);
        assert_eq!(of(failed | libc::IFA_F_PERMANENT), Detection::Duplicate);
    }
}
