//! The loopback interface of a new network namespace.
use crate::sys::netlink;
use std::io;
use std::net::IpAddr;

/// The kernel's number for the loopback interface of every network namespace.
const LOOPBACK: u32 = 1;

/// Brings the loopback interface of this network namespace up, and gives the interface these
/// addresses. An address that the kernel refuses is left out.
///
/// # Errors
/// The kernel refuses to bring the interface up.
pub fn open_loopback(addresses: &[IpAddr]) -> io::Result<()> {
    let up = libc::IFF_UP as u32;
    // ifinfomsg: family, padding, type, index, flags, and the mask of changed flags.
    let mut link = vec![0; 4];
    [LOOPBACK, up, up].iter().for_each(|word| link.extend_from_slice(&word.to_ne_bytes()));
    netlink::change(libc::NETLINK_ROUTE, libc::RTM_NEWLINK, 0, &link)?;
    for address in addresses {
        let (family, bytes) = netlink::parts_of(*address);
        // ifaddrmsg: family, length of the prefix in bits, flags, scope (global), index.
        let mut message = vec![family, 8 * bytes.len() as u8, 0, 0];
        message.extend_from_slice(&LOOPBACK.to_ne_bytes());
        for kind in [libc::IFA_LOCAL, libc::IFA_ADDRESS] {
            netlink::put_attribute(&mut message, kind, &bytes);
        }
        if let Err(e) =
            netlink::change(libc::NETLINK_ROUTE, libc::RTM_NEWADDR, libc::NLM_F_CREATE, &message)
        {
            log::debug!("the loopback interface gets no address {address}: {e}");
        }
    }
    Ok(())
}
