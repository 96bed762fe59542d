//! Whose a name, a port or an address is, as the kernel says.
//!
//! Names and ports are free for all to take, so who holds one proves nothing. What proves a
//! process's user is a connection: the kernel notes at either end whose process made it, and that
//! stays. See [`prove`].

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use crate::detection::{Detection, IFADDRMSG};
use crate::sys::{self, Fd, netlink};

/// What the kernel calls users that the process's user namespace does not know, unless it was told
/// otherwise.
const OVERFLOW_UID: u32 = 65534;
/// `unix_diag_req`: family, states, and what to show.
const UDIAG_SHOW_NAME: u32 = 1;
const UDIAG_SHOW_UID: u32 = 1 << 6;
const UNIX_DIAG_NAME: u16 = 0;
const UNIX_DIAG_UID: u16 = 7;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// Bytes before the attributes of an answer.
const UNIX_DIAG_MSG: usize = 16;
const RTMSG: usize = 12;

/// Can this process tell its own user from every other? Not if its user is the one that stands for
/// all unknown ones, in a user namespace that does not know all: the kernel shows it other
/// users under its own number.
#[must_use]
pub fn users_can_be_told_apart() -> bool {
    let read = |path| std::fs::read_to_string(path).ok();
    let overflow = read("/proc/sys/kernel/overflowuid").and_then(|text| text.trim().parse().ok());
    told_apart(sys::effective_uid(), overflow.unwrap_or(OVERFLOW_UID), read("/proc/self/uid_map").as_deref())
}

fn told_apart(uid: u32, overflow: u32, map: Option<&str>) -> bool {
    uid != overflow
        || map.is_some_and(|map| map.lines().any(|line| line.split_whitespace().eq(["0", "0", "4294967295"])))
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A process of the own user, by its number; 0 if it is in another PID namespace.
    Own(i32),
    /// A process of this user.
    OtherUser(u32),
}

/// Asks the kernel who is at the other end of a connection. The answer holds as long as the
/// connection does: it does not change hands, even if the process dies and another takes its name.
pub fn prove(fd: &Fd, uid: u32) -> io::Result<Proof> {
    let (theirs, pid) = sys::peer(fd)?;
    Ok(if theirs == uid { Proof::Own(pid) } else { Proof::OtherUser(theirs) })
}

/// The users that hold abstract names which `matches` chooses, with how many each. Empty where the
/// kernel does not say. Sockets of another kind have names of their own, which are in nobody's way.
pub fn holders(matches: impl Fn(&str) -> bool) -> BTreeMap<u32, usize> {
    let mut found = BTreeMap::new();
    each_name(|name, uid| {
        if matches(name) {
            *found.entry(uid).or_default() += 1;
        }
    });
    found
}

/// Tells of each abstract name of this kind of socket and of the user that holds it; of none where
/// the kernel does not say.
pub fn each_name(mut found: impl FnMut(&str, u32)) {
    // Family, protocol, padding, all states, any inode, what to show, cookie.
    let mut request = vec![libc::AF_UNIX as u8, 0, 0, 0];
    for word in [u32::MAX, 0, UDIAG_SHOW_NAME | UDIAG_SHOW_UID, 0, 0] {
        request.extend_from_slice(&word.to_ne_bytes());
    }
    let asked = netlink::dump(libc::NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, &request, &mut |item| {
        if item.get(1) != Some(&(libc::SOCK_SEQPACKET as u8)) {
            return;
        }
        let (mut name, mut uid) = (None, None);
        for (kind, value) in netlink::attributes(item.get(UNIX_DIAG_MSG..).unwrap_or_default()) {
            match kind {
                UNIX_DIAG_NAME => name = value.strip_prefix(&[0]),
                UNIX_DIAG_UID => uid = value.first_chunk::<4>().map(|uid| u32::from_ne_bytes(*uid)),
                _ => {}
            }
        }
        if let (Some(Ok(name)), Some(uid)) = (name.map(std::str::from_utf8), uid) {
            found(name, uid);
        }
    });
    if let Err(error) = asked {
        log::debug!("the kernel does not say who holds which names: {error}");
    }
}

/// Who has a UDP socket that keeps others from a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    pub uid: u32,
    /// The kernel itself, as root: its RoCE device.
    pub kernel: bool,
}

/// The kernel gives its table in parts and counts lines to find where it was: a socket that is
/// closed meanwhile hides another one. So the table is read this often.
const LOOKS: usize = 8;

/// Those of the UDP sockets that keep others from a port at an address, by the kernel's table:
/// those at any address of the family.
pub fn port_holders(ip: IpAddr, port: u16) -> Vec<Holder> {
    let mut found: Vec<Holder> = (0..LOOKS).flat_map(|_| listed_holders(ip, port)).collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The same as the table shows it once.
fn listed_holders(ip: IpAddr, port: u16) -> Vec<Holder> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (read("/proc/thread-self/net/udp"), read("/proc/thread-self/net/udp6"));
    let mut found: Vec<Holder> = match ip {
        IpAddr::V4(_) => v4.lines().filter_map(|line| holder(line, port, |_| true)).collect(),
        IpAddr::V6(_) => v6.lines().filter_map(|line| holder(line, port, |at| !is_v4(at))).collect(),
    };
    if ip.is_ipv4() && found.is_empty() {
        // One that is bound to all addresses of IPv6 has those of IPv4 as well, unless it says no.
        let everywhere = |at: &str| is_v4(at) || at.bytes().all(|b| b == b'0');
        found = v6.lines().filter_map(|line| holder(line, port, everywhere)).collect();
    }
    found
}

/// Is it an address of IPv4, as the table of IPv6 writes it?
fn is_v4(at: &str) -> bool {
    let none = table_name(Ipv4Addr::UNSPECIFIED.to_ipv6_mapped().into(), 0);
    at.get(..24) == none.get(..24)
}

/// Whose socket a line of the kernel's table is, if it has the port at an address that `here`
/// knows.
fn holder(line: &str, port: u16, here: impl Fn(&str) -> bool) -> Option<Holder> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, _, _, _, _, uid, _, inode, ..] = words[..] else { return None };
    let (at, its_port) = local.split_once(':')?;
    if its_port != format!("{port:04X}") || !here(at) {
        return None;
    }
    // Every process's socket has an inode.
    Some(Holder { uid: uid.parse().ok()?, kernel: inode == "0" })
}

/// An address and port as the kernel's tables of UDP sockets name them: words in the machine's byte
/// order.
pub fn table_name(ip: IpAddr, port: u16) -> String {
    let word = |bytes: &[u8]| format!("{:08X}", u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    let mut name: String = match ip {
        IpAddr::V4(v4) => word(&v4.octets()),
        IpAddr::V6(v6) => v6.octets().chunks_exact(4).map(word).collect(),
    };
    name += &format!(":{port:04X}");
    name
}

/// Addresses of this machine, in ranges: an address, and how many of its leading bits count.
pub type Ranges = Vec<(IpAddr, u8)>;

/// The addresses that this machine sends from: those of its interfaces, and what its table of local
/// routes adds. Beside them the IPv6 addresses for which duplicate address detection is under way.
///
/// # Errors
/// Where the kernel does not say.
pub fn local_ranges() -> io::Result<(Ranges, Vec<IpAddr>)> {
    let (mut found, mut tentative) = (Ranges::new(), Vec::new());
    // Family, and nothing else that would narrow it.
    netlink::dump(libc::NETLINK_ROUTE, libc::RTM_GETADDR, &[0; IFADDRMSG], &mut |item| {
        let attributes = netlink::attributes(item.get(IFADDRMSG..).unwrap_or_default());
        // Until detection has passed, the address may be another host's.
        let list = match Detection::of_item(item) {
            Detection::Passed => &mut found,
            Detection::Tentative => &mut tentative,
            Detection::Duplicate => return,
        };
        list.extend(
            attributes
                // Of a point-to-point link one is the other end's, which the local table does not
                // know.
                .filter(|(kind, _)| {
                    *kind == libc::IFA_LOCAL || *kind == libc::IFA_ADDRESS && item[0] == libc::AF_INET6 as u8
                })
                .filter_map(|(_, value)| ip_of(value))
                .map(|ip| (ip, whole(ip))),
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
    match bytes.len() {
        4 => bytes.first_chunk::<4>().map(|b| IpAddr::from(*b)),
        16 => bytes.first_chunk::<16>().map(|b| IpAddr::from(*b)),
        _ => None,
    }
}

fn whole(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Is the address in one of the ranges?
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
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn tru_1_a_user_that_stands_for_others_proves_nothing() {
        let all = "         0          0 4294967295\n";
        assert!(told_apart(1000, 65534, None));
        assert!(told_apart(65534, 65534, Some(all)), "the first namespace knows everybody");
        assert!(!told_apart(65534, 65534, Some("         0     100000      65536\n")));
        assert!(!told_apart(65534, 65534, Some("     65534       1000          1\n")));
        assert!(!told_apart(65534, 65534, None));
    }

    #[test]
    fn the_machine_knows_its_own_addresses() {
        let (ranges, _) = local_ranges().unwrap();
        for own in ["127.0.0.1", "127.9.9.9", "::1"] {
            assert!(within(&ranges, own.parse().unwrap()), "{own}: {ranges:?}");
        }
        for other in ["192.0.2.1", "2001:db8::1", "0.0.0.0"] {
            assert!(!within(&ranges, other.parse().unwrap()), "{other}: {ranges:?}");
        }
    }

    #[test]
    fn ranges_end_where_they_end() {
        let ranges = vec![("10.1.2.0".parse().unwrap(), 24), ("fd00::".parse().unwrap(), 64)];
        for (ip, is) in [
            ("10.1.2.0", true),
            ("10.1.2.255", true),
            ("10.1.3.0", false),
            ("10.1.1.255", false),
            ("fd00::ffff", true),
            ("fd00:0:0:1::", false),
        ] {
            assert_eq!(within(&ranges, ip.parse().unwrap()), is, "{ip}");
        }
    }

    /// TRU-4: root, too, is told that it is the kernel.
    #[test]
    fn the_kernels_own_socket_is_known() {
        let line = |uid, inode| {
            format!(
                " 1234: 00000000:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000 {uid:5} 0 {inode} 2 0 0"
            )
        };
        assert_eq!(holder(&line(0, 0), 4791, |_| true), Some(Holder { uid: 0, kernel: true }));
        assert_eq!(holder(&line(77, 4711), 4791, |_| true), Some(Holder { uid: 77, kernel: false }));
        assert_eq!(holder(&line(77, 4711), 4792, |_| true), None);
        assert_eq!(holder("sl local_address", 4791, |_| true), None);
    }

    #[test]
    fn the_kernel_says_who_holds_a_name_and_a_port() {
        let name = format!("adverb-test-holder-{}", std::process::id());
        let held = sys::message_socket(&sys::FdTable::new()).unwrap();
        sys::bind(&held, &sys::RawAddr::abstract_name(&name)).unwrap();
        let uid = sys::effective_uid();
        assert_eq!(holders(|n| n == name), BTreeMap::from([(uid, 1)]));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        let own = Holder { uid, kernel: false };
        assert_eq!(port_holders("127.0.0.1".parse().unwrap(), port), [own]);
        assert_eq!(port_holders("127.0.0.2".parse().unwrap(), port), [own]);
        assert_eq!(port_holders("::1".parse().unwrap(), port), []);
    }

    /// The table is read in parts while other sockets come and go.
    #[test]
    fn a_holder_is_found_among_sockets_that_come_and_go() {
        let open = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let still = AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while still.load(Ordering::Relaxed) {
                    let many: Vec<_> = (0..100).map(|_| open()).collect();
                    drop(many);
                }
            });
            let own = Holder { uid: sys::effective_uid(), kernel: false };
            let missed = (0..300).filter(|_| {
                let socket = open();
                let port = socket.local_addr().unwrap().port();
                port_holders("127.0.0.1".parse().unwrap(), port) != [own]
            });
            let missed = missed.count();
            still.store(false, Ordering::Relaxed);
            assert_eq!(missed, 0, "of 300");
        });
    }
}
