//! Answers to the program's queries about an id: addresses, device, path.
use crate::address::Address;
use crate::id::CmId;
use crate::request::{Addresses, Path};
use adverb_cm::ip::{gid, service_id};
use std::net::Ipv6Addr;

/// QUERY_ADDR.
pub fn addresses(id: &CmId) -> Addresses {
    let device = id.binding.as_ref().map(|binding| (binding.guid, binding.index));
    Addresses { device, source: id.source, destination: id.destination }
}

fn gid_of(address: Option<Address>) -> Ipv6Addr {
    match address {
        Some(Address::Ip(a)) => gid(a.ip()),
        Some(Address::Ib { gid, .. }) => gid,
        None => Ipv6Addr::UNSPECIFIED,
    }
}

/// QUERY_GID: the addresses in the form of InfiniBand addresses.
pub fn gids(id: &CmId) -> Addresses {
    let as_ib = |address| match address {
        Some(ib @ Address::Ib { .. }) => Some(ib),
        other => {
            let port = other.map_or(0, |a: Address| a.port());
            Some(Address::Ib { gid: gid_of(other), sid: service_id(id.port_space, port), mask: 0 })
        }
    };
    Addresses { source: as_ib(id.source), destination: as_ib(id.destination), ..addresses(id) }
}

/// QUERY_PATH.
pub fn path(id: &CmId) -> Path {
    Path { source: gid_of(id.source), destination: gid_of(id.destination), route: id.route }
}
