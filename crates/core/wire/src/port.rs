//! UDP ports (RoCEv2 annex A17).

/// UDP destination port of RoCEv2.
pub const ROCE_PORT: u16 = 4791;

const DYNAMIC: u16 = 0xc000;

/// UDP source port of a connected QP. Both ends compute the same port, so both directions take the
/// same path.
///
/// The product of the QPNs is folded to a 20-bit flow label, and the label to 14 bits, as in Linux.
#[must_use]
pub const fn udp_source_port(lqpn: u32, rqpn: u32) -> u16 {
    let mut v = lqpn as u64 * rqpn as u64;
    v ^= v >> 20;
    v ^= v >> 40;
    flow_label_source_port((v & 0xf_ffff) as u32)
}

/// UDP source port for a flow label of 20 bits (`rdma_flow_label_to_udp_sport` of rdma-core).
#[must_use]
pub const fn flow_label_source_port(label: u32) -> u16 {
    ((label & 0x3fff) ^ (label >> 14 & 0x3f)) as u16 | DYNAMIC
}

/// UDP source port of an unconnected (UD or GSI) QP: a multiplicative hash of its QPN to 14 bits.
#[must_use]
pub const fn ud_source_port(qpn: u32) -> u16 {
    (qpn.wrapping_mul(0x61c8_8647) >> 18) as u16 | DYNAMIC
}
