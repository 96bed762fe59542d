//! What programs ask about an id: addresses, device, path.
use crate::abi::{Output, STORAGE};
use crate::address::{Address, SOCKADDR_IB};
use crate::event::PORT;
use crate::id::{CmId, PKEY, Route};
use adverb_cm::ip::{gid, service_id};
use std::net::Ipv6Addr;

/// Bytes of `struct rdma_ucm_query_addr_resp`, and those before the device's index.
const ADDR: usize = 280;
pub const ADDR_LEAST: usize = 272;
/// Bytes of `struct rdma_ucm_query_route_resp`, and those before the device's index.
const ROUTE: usize = 208;
pub const ROUTE_LEAST: usize = 200;
/// Bytes of `struct ib_path_rec_data`.
pub const PATH_DATA: usize = 72;
/// Flags of the one path: IB_PATH_GMP, IB_PATH_PRIMARY and IB_PATH_BIDIRECTIONAL.
pub const PATH_FLAGS: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 5;
/// "Exactly", of a value in a path record.
const EXACTLY: u8 = 2;

/// The device's part of an answer.
fn device(id: &CmId, out: &mut Output<ADDR>) {
    if let Some(place) = &id.place {
        out.put(0, &place.guid.to_be_bytes()).u8(8, PORT).put(10, &PKEY.to_be_bytes()).u32(272, place.index);
    } else {
        out.u32(272, u32::MAX);
    }
}

/// QUERY_ADDR.
pub fn addresses(id: &CmId) -> Output<ADDR> {
    let mut out = Output::new();
    device(id, &mut out);
    for (size_at, at, address) in [(12, 16, id.source), (14, 16 + STORAGE, id.destination)] {
        if let Some(address) = address {
            out.u16(size_at, address.size()).put(at, &address.write());
        }
    }
    out
}

fn gid_of(address: Option<Address>) -> Ipv6Addr {
    match address {
        Some(Address::Ip(a)) => gid(a.ip()),
        Some(Address::Ib { gid, .. }) => gid,
        None => Ipv6Addr::UNSPECIFIED,
    }
}

/// QUERY_GID: the addresses as `sockaddr_ib`.
pub fn gids(id: &CmId) -> Output<ADDR> {
    let mut out = Output::new();
    device(id, &mut out);
    for (size_at, at, address) in [(12, 16, id.source), (14, 16 + STORAGE, id.destination)] {
        let as_ib = match address {
            Some(ib @ Address::Ib { .. }) => ib,
            other => {
                let port = other.map_or(0, |a| a.port());
                Address::Ib { gid: gid_of(other), sid: service_id(id.port_space, port), mask: 0 }
            }
        };
        out.u16(size_at, SOCKADDR_IB).put(at, &as_ib.write());
    }
    out
}

/// A path record as it is on the wire (`struct ibv_path_record`).
fn record(id: &CmId, route: &Route) -> [u8; 64] {
    let mut out = Output::<64>::new();
    let flow_hop = route.flow_label << 8 | u32::from(route.hop_limit);
    out.put(8, &gid_of(id.destination).octets()).put(24, &gid_of(id.source).octets());
    out.put(44, &flow_hop.to_be_bytes()).u8(48, route.traffic_class).u8(49, 1 << 7 | 1);
    out.put(50, &PKEY.to_be_bytes()).put(52, &u16::from(route.service_level).to_be_bytes());
    out.u8(54, EXACTLY << 6 | route.mtu).u8(55, EXACTLY << 6);
    out.u8(56, EXACTLY << 6 | route.packet_lifetime);
    out.0
}

/// What a program's own path record says of a route.
pub fn read_record(record: &[u8]) -> Option<Route> {
    let byte = |at: usize| record.get(at).copied();
    let word = u32::from_be_bytes([byte(44)?, byte(45)?, byte(46)?, byte(47)?]);
    let mtu = byte(54)? & 0x3f;
    Some(Route {
        mtu: mtu.clamp(1, 5),
        traffic_class: byte(48)?,
        flow_label: word >> 8 & 0xf_ffff,
        hop_limit: word as u8,
        service_level: byte(53)? & 15,
        packet_lifetime: byte(56)? & 0x3f,
    })
}

/// QUERY_PATH: the path, if it is known and there is room.
pub fn paths(id: &CmId, room: usize) -> Vec<u8> {
    let mut out = Output::<{ 8 + PATH_DATA }>::new();
    let Some(route) = &id.route else { return out.0[..8].to_vec() };
    out.u32(0, 1).u32(8, PATH_FLAGS).put(16, &record(id, route));
    let len = if room >= out.0.len() { out.0.len() } else { 8 };
    out.0[..len].to_vec()
}

/// QUERY_ROUTE.
pub fn route(id: &CmId) -> Output<ROUTE> {
    let mut out = Output::new();
    out.u32(200, id.place.as_ref().map_or(u32::MAX, |place| place.index));
    for (at, address) in [(136, id.source), (164, id.destination)] {
        if let Some(address) = address {
            out.put(at, &address.write()[..28]);
        }
    }
    let Some(place) = &id.place else { return out };
    out.put(0, &place.guid.to_be_bytes()).u8(196, PORT);
    out.put(8, &gid_of(id.destination).octets()).put(24, &gid_of(id.source).octets());
    let pkey = PKEY.to_be_bytes();
    out.put(8 + 52, &pkey);
    if let Some(route) = &id.route {
        out.u32(192, 1);
        out.put(8 + 40, &route.flow_label.to_be_bytes());
        out.u32(8 + 44, 1).u32(8 + 48, route.mtu.into()).put(8 + 52, &pkey);
        let rest = [
            route.hop_limit,
            route.traffic_class,
            1,
            route.service_level,
            EXACTLY,
            EXACTLY,
            0,
            EXACTLY,
            route.packet_lifetime,
            0,
        ];
        out.put(8 + 54, &rest);
    }
    out
}
