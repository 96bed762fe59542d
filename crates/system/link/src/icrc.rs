//! The ICRC of packets sent and received here: passes the flow's addresses and ports to
//! `adverb-wire`.

use std::net::{IpAddr, SocketAddr};

pub(crate) use adverb_wire::ICRC_LEN;
use adverb_wire::icrc::{IcrcState, IpMeta, Solver, UdpMeta};

const UDP_LEN: usize = 8;

fn metas(src: &SocketAddr, dst: &SocketAddr, id: u16, covered: usize) -> (IpMeta, UdpMeta) {
    let ip = match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            IpMeta::V4 { src: src.octets(), dst: dst.octets(), id, dont_fragment: true }
        }
        (src, dst) => IpMeta::V6 { src: octets(src), dst: octets(dst) },
    };
    let len = (UDP_LEN + covered + ICRC_LEN) as u16;
    (ip, UdpMeta { src_port: src.port(), dst_port: dst.port(), len })
}

/// The kernel refuses mixed families, so such packets never leave the machine; any value will do.
fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The ICRC of a packet, BTH through pad, sent with this IPv4 identification.
pub(crate) fn compute(
    src: &SocketAddr,
    dst: &SocketAddr,
    id: u16,
    packet: &[u8],
) -> [u8; ICRC_LEN] {
    let (ip, udp) = metas(src, dst, id, packet.len());
    IcrcState::new(&ip, &udp, packet).finish()
}

/// Checks a packet, BTH through ICRC; returns its IPv4 identification (0 over IPv6). Tries `hint`
/// first.
pub(crate) fn verify(
    solver: &mut Solver,
    src: &SocketAddr,
    dst: &SocketAddr,
    hint: u16,
    packet: &[u8],
) -> Option<u16> {
    let (covered, icrc) = packet.split_last_chunk::<ICRC_LEN>()?;
    let (ip, udp) = metas(src, dst, hint, covered.len());
    solver.verify(&ip, &udp, covered, *icrc)
}
