//! The owners of names, ports and addresses, as reported by the kernel.
//!
//! Any process can take a free name or port, so holding one proves nothing. A connection proves the
//! user of a process: the kernel records at either end the process that made the connection, and
//! never changes the record. See [`prove`].

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use crate::detection::{Detection, IFADDRMSG};
use crate::sys::netlink::{self, RTMSG};
use crate::sys::{self, Fd};

/// The kernel's default number for users unknown in the process's user namespace.
const OVERFLOW_UID: u32 = 65534;
/// Flags of `unix_diag_req`: what to show. `UNIX_DIAG_*` are attributes of the answer.
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_RQLEN: u32 = 1 << 4;
const UDIAG_SHOW_UID: u32 = 1 << 6;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_RQLEN: u16 = 4;
const UNIX_DIAG_UID: u16 = 7;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Bytes before the attributes of an answer.
const UNIX_DIAG_MSG: usize = 16;

/// Whether this process can tell its own user apart from all other users. Not possible if its user
/// is the overflow user, and its user namespace does not map all users: the kernel then shows other
/// users under the same number.
#[must_use]
pub fn users_can_be_told_apart() -> bool {
    let read = |path| std::fs::read_to_string(path).ok();
    let overflow = read("/proc/sys/kernel/overflowuid").and_then(|text| text.trim().parse().ok());
    told_apart(
        sys::effective_uid(),
        overflow.unwrap_or(OVERFLOW_UID),
        read("/proc/self/uid_map").as_deref(),
    )
}

fn told_apart(uid: u32, overflow: u32, map: Option<&str>) -> bool {
    uid != overflow
        || map.is_some_and(|map| {
            map.lines().any(|line| line.split_whitespace().eq(["0", "0", "4294967295"]))
        })
}

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A process of the own user, by its process id; 0 in another PID namespace.
    Own(i32),
    /// A process of this user.
    OtherUser(u32),
}

/// Asks the kernel for the other end of a connection. The answer holds for the lifetime of the
/// connection: it does not change, even if the process dies and another process takes the name.
pub fn prove(fd: &Fd, uid: u32) -> io::Result<Proof> {
    let (theirs, pid) = sys::peer(fd)?;
    Ok(if theirs == uid { Proof::Own(pid) } else { Proof::OtherUser(theirs) })
}

/// The users holding abstract names for which `matches` is true, with the number of names of each.
/// Empty if the kernel does not answer. Other socket types have their own names, which do not
/// conflict.
pub fn holders(matches: impl Fn(&str) -> bool) -> BTreeMap<u32, usize> {
    let mut found = BTreeMap::new();
    each_name(|name, uid| {
        if matches(name) {
            *found.entry(uid).or_default() += 1;
        }
    });
    found
}

/// Calls `found` with each abstract name of this socket type and the user holding it. No calls if
/// the kernel does not answer.
pub fn each_name(mut found: impl FnMut(&str, u32)) {
    each_listener(|name, uid, _| found(name, uid));
}

/// As [`each_name`], with the number of connections that wait for the holder to accept them.
pub fn each_listener(mut found: impl FnMut(&str, u32, u32)) {
    // Family, protocol, padding, all states, any inode, what to show, cookie.
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    let show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID | UDIAG_SHOW_RQLEN;
    for word in [u32::MAX, 0, show, 0, 0] {
        request.extend_from_slice(&word.to_ne_bytes());
    }
    let asked =
        netlink::dump(libc::NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &request, &mut |item| {
            if item.get(1) != Some(&(libc::SOCK_SEQPACKET as u8)) {
                return;
            }
            let (mut name, mut uid, mut waiting) = (None, None, 0);
            for (kind, value) in netlink::attributes(item.get(UNIX_DIAG_MSG..).unwrap_or_default())
            {
                match kind {
                    UNIX_DIAG_NAME => name = value.strip_prefix(&[0]),
                    UNIX_DIAG_UID => uid = netlink::word(value),
                    UNIX_DIAG_RQLEN => waiting = netlink::word(value).unwrap_or_default(),
                    _ => {}
                }
            }
            if let (Some(Ok(name)), Some(uid)) = (name.map(std::str::from_utf8), uid) {
                found(name, uid, waiting);
            }
        });
    if let Err(error) = asked {
        log::debug!("the kernel does not show the owners of the names: {error}");
    }
}

/// The holder of a UDP socket that keeps others from a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    pub uid: u32,
    /// The kernel itself, as root: its RoCE device.
    pub kernel: bool,
}

/// How often the kernel's table is read. The kernel returns the table in parts and counts lines to
/// find its position. A socket closed meanwhile shifts the lines, and so hides another socket.
const LOOKS: usize = 8;

/// The holders of UDP sockets that keep others from a port at an address, by the kernel's table:
/// sockets at any address of the same family.
pub fn port_holders(ip: IpAddr, port: u16) -> Vec<Holder> {
    let mut found: Vec<Holder> = (0..LOOKS).flat_map(|_| listed_holders(ip, port)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The holders by one reading of the table.
fn listed_holders(ip: IpAddr, port: u16) -> Vec<Holder> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (read("/proc/thread-self/net/udp"), read("/proc/thread-self/net/udp6"));
    let mut found: Vec<Holder> = match ip {
        IpAddr::V4(_) => v4.lines().filter_map(|line| holder(line, port, |_| true)).collect(),
        IpAddr::V6(_) => {
            v6.lines().filter_map(|line| holder(line, port, |at| !is_v4(at))).collect()
        }
    };
    if ip.is_ipv4() && found.is_empty() {
        // An IPv6 socket bound to all addresses also has the IPv4 addresses, unless it is
        // restricted to IPv6.
        let everywhere = |at: &str| is_v4(at) || at.bytes().all(|b| b == b'0');
        found = v6.lines().filter_map(|line| holder(line, port, everywhere)).collect();
    }
    found
}

/// Whether an address in the IPv6 table is an IPv4 address.
fn is_v4(at: &str) -> bool {
    let none = table_name(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().into(), 0);
    at.get(..24) == none.get(..24)
}

/// The holder of the socket in a line of the kernel's table, if the socket has the port at an
/// address accepted by `here`.
fn holder(line: &str, port: u16, here: impl Fn(&str) -> bool) -> Option<Holder> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, _, _, _, _, uid, _, inode, ..] = words[..] else { return None };
    let (at, its_port) = local.split_once(':')?;
    if its_port != format!("{port:04X}") || !here(at) {
        return None;
    }
    // Sockets of processes have an inode; the kernel's own have none.
    Some(Holder { uid: uid.parse().ok()?, kernel: inode == "0" })
}

/// An address and port as written in the kernel's tables of UDP sockets: words in the machine's
/// byte order.
pub fn table_name(ip: IpAddr, port: u16) -> String {
    let word = |bytes: &[u8]| {
        format!("{:08X}", u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    let mut name: String = match ip {
        IpAddr::V4(v4) => word(&v4.octets()),
        IpAddr::V6(v6) => v6.octets().chunks_exact(4).map(word).collect(),
    };
    name += &format!(":{port:04X}");
    name
}

/// Ranges of addresses: an address, and the number of its significant leading bits.
pub type Ranges = Vec<(IpAddr, u8)>;

/// The source addresses of this machine: the addresses of its interfaces, and the entries of its
/// local routing table. Also the IPv6 addresses with duplicate address detection under way.
///
/// # Errors
/// The kernel does not answer.
pub fn local_ranges() -> io::Result<(Ranges, Vec<IpAddr>)> {
    let (mut found, mut tentative) = (Ranges::new(), Vec::new());
    // Family 0 asks for all families, and no other field narrows the dump.
    netlink::dump(libc::NETLINK_ROUTE, libc::RTM_GETADDR, &[0; IFADDRMSG], &mut |item| {
        let attributes = netlink::attributes(item.get(IFADDRMSG..).unwrap_or_default());
        // Before detection has passed, the address may be another host's.
        let list = match Detection::of_item(item) {
            Detection::Passed => &mut found,
            Detection::Tentative => &mut tentative,
            Detection::Duplicate => return,
        };
        list.extend(
            attributes
                // On a point-to-point link, IFA_ADDRESS is the other end's address, which is not in
                // the local table.
                .filter(|(kind, _)| {
                    *kind == libc::IFA_LOCAL
                        || *kind == libc::IFA_ADDRESS && item[0] == libc::AF_INET6 as u8
                })
                .filter_map(|(_, value)| ip_of(value))
                .map(|ip| (ip, if ip.is_ipv4() { 32 } else { 128 })),
        );
    })?;
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut request = [0; RTMSG];
        request[0] = family as u8;
        netlink::dump(libc::NETLINK_ROUTE, libc::RTM_GETROUTE, &request, &mut |item| {
            let (Some(&bits), Some(&kind)) = (item.get(1), item.get(7)) else { return };
            if kind != libc::RTN_LOCAL {
                return;
            }
            let attributes = netlink::attributes(item.get(RTMSG..).unwrap_or_default());
            found.extend(
                attributes
                    .filter(|(kind, _)| *kind == libc::RTA_DST)
                    .filter_map(|(_, value)| ip_of(value))
                    .map(|ip| (ip, bits)),
            );
        })?;
    }
    found.sort_unstable();
    found.dedup();
    Ok((found, tentative.into_iter().map(|(ip, _)| ip).collect()))
}

pub fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Whether the address is in one of the ranges.
pub fn within(ranges: &[(IpAddr, u8)], ip: IpAddr) -> bool {
    ranges.iter().any(|&(start, bits)| match (start, ip) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            bits == 0 || (u32::from(a) ^ u32::from(b)) >> (32 - u32::from(bits.min(32))) == 0
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            bits == 0 || (u128::from(a) ^ u128::from(b)) >> (128 - u32::from(bits.min(128))) == 0
        }
        _ => false,
    })
}

#[cfg(all(test, not(loom)))]
mod tests;
