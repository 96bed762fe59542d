//! The groups named by a multicast GID.
use adverb_engine::Gid;
use adverb_link::AddrIndex;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IPv4 address in the last bytes of a GID.
fn last_ipv4(gid: &Gid) -> Ipv4Addr {
    let [.., a, b, c, d] = gid.0;
    Ipv4Addr::new(a, b, c, d)
}

/// Is this the GID of a group?
#[must_use]
pub fn is_multicast(gid: &Gid) -> bool {
    gid.0[0] == 0xff || gid.ipv4().is_some_and(|v4| Ipv4Addr::from(v4).is_multicast())
}

/// The IPv4 group of a multicast GID, if there is any.
fn ipv4_group(gid: &Gid) -> Option<Ipv4Addr> {
    let mapped =
        gid.0[0] == 0xff && gid.0[2..10].iter().all(|b| *b == 0) && gid.0[10..12] == [0xff; 2];
    let v4 = last_ipv4(gid);
    ((mapped || gid.ipv4().is_some()) && v4.is_multicast()).then_some(v4)
}

/// The same group in the form for a queue pair at an address of this family.
pub(crate) fn toward(gid: &Gid, ipv4: bool) -> Gid {
    match ipv4_group(gid).filter(|_| ipv4) {
        Some(v4) => Gid::from_ipv4(v4.octets()),
        None => *gid,
    }
}

/// The multicast GID of an IP multicast address, as Linux maps it on RoCEv2.
///
/// ```
/// let gid = adverb_device::multicast::mgid_of([239, 1, 2, 3].into());
/// assert_eq!(gid.ipv4(), Some([239, 1, 2, 3]));
/// ```
#[must_use]
pub fn mgid_of(group: IpAddr) -> Gid {
    crate::interfaces::gid_of(&group)
}

/// A queue pair's attachment to a group.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(super) gid: Gid,
    pub(super) lid: u16,
    pub(super) groups: Vec<AddrIndex>,
}

/// The IP groups of a multicast GID: IPv4, IPv6, or both if the GID means both.
pub(super) fn groups_of(gid: &Gid) -> Vec<IpAddr> {
    let v6 = Some(Ipv6Addr::from(gid.0)).filter(|_| gid.0[0] == 0xff).map(IpAddr::V6);
    ipv4_group(gid).map(IpAddr::V4).into_iter().chain(v6).collect()
}
