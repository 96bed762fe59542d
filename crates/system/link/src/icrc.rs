//! The ICRC of packets sent and received here: passes the flow's addresses and ports to
//! `adverb-wire`.

use std::net::{IpAddr, SocketAddr};

pub(crate) use adverb_wire::ICRC_LEN;
use adverb_wire::icrc::{IcrcFlow, IpMeta, Solver, UdpMeta};

const UDP_LEN: usize = 8;

fn metas(src: &SocketAddr, dst: &SocketAddr, covered: usize) -> (IpMeta, UdpMeta) {
    let ip = match (src.ip(), dst.ip()) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            IpMeta::V4 { src: src.octets(), dst: dst.octets(), id: 0, dont_fragment: true }
        }
        (src, dst) => IpMeta::V6 { src: octets(src), dst: octets(dst) },
    };
    let len = (UDP_LEN + covered + ICRC_LEN) as u16;
    (ip, UdpMeta { src_port: src.port(), dst_port: dst.port(), len })
}

/// The kernel refuses mixed families, so such packets never leave the machine; any value will do.
pub(crate) fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// The ICRCs of packets from one address to another. What packets of one length have in common is
/// summed once.
#[derive(Default)]
pub(crate) struct Sums(Option<(usize, IcrcFlow)>);

impl Sums {
    #[inline]
    fn flow(&mut self, src: &SocketAddr, dst: &SocketAddr, covered: usize) -> &IcrcFlow {
        self.0.take_if(|(len, _)| *len != covered);
        let (_, flow) = self.0.get_or_insert_with(|| {
            let (ip, udp) = metas(src, dst, covered);
            (covered, IcrcFlow::new(&ip, &udp))
        });
        flow
    }

    /// The ICRC of a packet, BTH through pad, sent with this IPv4 identification.
    #[inline]
    pub(crate) fn compute(
        &mut self,
        src: &SocketAddr,
        dst: &SocketAddr,
        id: u16,
        packet: &[u8],
    ) -> [u8; ICRC_LEN] {
        self.flow(src, dst, packet.len()).icrc(id, packet).to_le_bytes()
    }

    /// Checks a packet, BTH through ICRC; returns its IPv4 identification (0 over IPv6). Tries
    /// `hint` first.
    #[inline]
    pub(crate) fn verify(
        &mut self,
        solver: &mut Solver,
        src: &SocketAddr,
        dst: &SocketAddr,
        hint: u16,
        packet: &[u8],
    ) -> Option<u16> {
        let (covered, icrc) = packet.split_last_chunk::<ICRC_LEN>()?;
        solver.verify(self.flow(src, dst, covered.len()), hint, covered, *icrc)
    }
}
