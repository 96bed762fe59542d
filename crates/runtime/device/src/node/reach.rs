//! Whether this machine's kernel has a way to a peer: a route, and a neighbour that answers.
use super::carriers::udp::scope_of;
use super::core::Node;
use crate::error::Error;
use crate::interfaces::ip_of;
use adverb_engine::AddressVector;
use adverb_os::{NoWay, find_neighbour, no_way_now};
use nix::errno::Errno;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

/// The two ends of the way, unless packets to the peer leave through no link.
fn ends(node: &Node, av: &AddressVector) -> Option<(IpAddr, SocketAddr)> {
    let to = ip_of(&av.dgid);
    if node.link.udp().is_none() || to.is_multicast() || node.is_own_address(to) {
        return None;
    }
    let to = match to {
        IpAddr::V4(v4) => (v4, 0).into(),
        IpAddr::V6(v6) => SocketAddrV6::new(v6, 0, 0, scope_of(&av.dgid, av.scope_id)).into(),
    };
    Some((ip_of(&av.sgid), to))
}

fn words(to: IpAddr, no_way: &NoWay) -> String {
    match no_way {
        NoWay::NoRoute(error) => {
            let answer = error.raw_os_error().map_or(Errno::ENETUNREACH, Errno::from_raw);
            format!("this machine has no route to {to} (the kernel answers {answer:?})")
        }
        NoWay::Silent(hop) if *hop == to => format!(
            "no host on the link answers for {to} (ARP, neighbour discovery): is the host up, and \
             on this link?"
        ),
        NoWay::Silent(hop) => format!(
            "no host on the link answers for {hop}, the gateway to {to} (ARP, neighbour discovery)"
        ),
    }
}

/// Waits until the kernel can send packets to the peer. A neighbour that the kernel does not know
/// is asked for. The caller holds no lock.
///
/// # Errors
/// ETIMEDOUT or ENETUNREACH, as from Linux: no route, or no answer.
pub(crate) fn await_way(node: &Node, av: &AddressVector) -> Result<(), Error> {
    let Some((from, to)) = ends(node, av) else { return Ok(()) };
    find_neighbour(from, to).map_err(|no_way| {
        // Linux asks the link for an IPv4 address without a route, and gets no answer.
        let errno = match &no_way {
            NoWay::NoRoute(error) if to.is_ipv6() => {
                error.raw_os_error().map_or(Errno::ENETUNREACH, Errno::from_raw)
            }
            _ => Errno::ETIMEDOUT,
        };
        Error::new(errno, words(to.ip(), &no_way))
    })
}

/// Why the kernel cannot send packets to the peer now.
pub(super) fn no_way(node: &Node, av: &AddressVector) -> Option<String> {
    let (from, to) = ends(node, av)?;
    no_way_now(from, to).map(|no_way| words(to.ip(), &no_way))
}
