//! Flow rules: conditions on a frame.
use crate::frame::{Frame, Network, Transport};
use alloc::vec::Vec;

/// Bytes to compare with, and a mask of the bits to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match<const N: usize> {
    /// The wanted value.
    pub value: [u8; N],
    /// The bits to compare.
    pub mask: [u8; N],
}

impl<const N: usize> Match<N> {
    /// Matches every value.
    pub const ANY: Self = Match { value: [0; N], mask: [0; N] };

    /// Matches this value only.
    #[must_use]
    pub const fn exactly(value: [u8; N]) -> Self {
        Match { value, mask: [0xff; N] }
    }
    fn takes(&self, field: &[u8; N]) -> bool {
        (0..N).all(|i| (field[i] ^ self.value[i]) & self.mask[i] == 0)
    }
    /// Does the mask select no bit?
    fn is_any(&self) -> bool {
        self.mask == [0; N]
    }
}

/// Conditions on one layer of a frame; values are in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Spec {
    /// Ethernet. If `vlan` has any bit in its mask, the frame needs a VLAN tag. The type is the
    /// type after the tags.
    Eth { dst: Match<6>, src: Match<6>, ether_type: Match<2>, vlan: Match<2> },
    /// IPv4.
    Ipv4 {
        src: Match<4>,
        dst: Match<4>,
        proto: Match<1>,
        tos: Match<1>,
        ttl: Match<1>,
        flags: Match<1>,
    },
    /// IPv6.
    Ipv6 {
        src: Match<16>,
        dst: Match<16>,
        flow_label: Match<4>,
        next_header: Match<1>,
        traffic_class: Match<1>,
        hop_limit: Match<1>,
    },
    /// TCP or UDP, above IPv4 or IPv6.
    Ports { transport: Transport, src: Match<2>, dst: Match<2> },
}

impl Spec {
    fn takes(&self, frame: &Frame) -> bool {
        match self {
            Spec::Eth { dst, src, ether_type, vlan } => {
                dst.takes(&frame.dst)
                    && src.takes(&frame.src)
                    && ether_type.takes(&frame.ether_type)
                    && (vlan.is_any() || frame.vlan.is_some_and(|tag| vlan.takes(&tag)))
            }
            Spec::Ipv4 { src, dst, proto, tos, ttl, flags } => match &frame.network {
                Network::Ipv4 { src: s, dst: d, proto: p, tos: o, ttl: l, flags: f } => {
                    src.takes(s)
                        && dst.takes(d)
                        && proto.takes(&[*p])
                        && tos.takes(&[*o])
                        && ttl.takes(&[*l])
                        && flags.takes(&[*f])
                }
                _ => false,
            },
            Spec::Ipv6 { src, dst, flow_label, next_header, traffic_class, hop_limit } => {
                match &frame.network {
                    Network::Ipv6 {
                        src: s,
                        dst: d,
                        flow_label: f,
                        next_header: n,
                        traffic_class: t,
                        hop_limit: h,
                    } => {
                        src.takes(s)
                            && dst.takes(d)
                            && flow_label.takes(f)
                            && next_header.takes(&[*n])
                            && traffic_class.takes(&[*t])
                            && hop_limit.takes(&[*h])
                    }
                    _ => false,
                }
            }
            Spec::Ports { transport, src, dst } => frame.ports.is_some_and(|p| {
                p.transport == *transport && src.takes(&p.src) && dst.takes(&p.dst)
            }),
        }
    }
}

/// When a rule applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// In the order of priority.
    Normal,
    /// If no matching normal rule traps the frame.
    AllDefault,
    /// If no matching normal rule traps the frame, for multicast frames only.
    McDefault,
    /// Always, without an effect on other rules.
    Sniffer,
}

/// A flow rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(crate) kind: Kind,
    pub(crate) priority: u16,
    pub(crate) specs: Vec<Spec>,
    pub(crate) traps: bool,
    pub(crate) drops: bool,
}

impl Rule {
    /// Creates a rule. A rule with a smaller priority number is checked earlier. A rule without
    /// conditions matches every frame.
    #[must_use]
    pub fn new(kind: Kind, priority: u16, specs: Vec<Spec>) -> Self {
        Rule { kind, priority, specs, traps: true, drops: false }
    }
    /// Lets rules of later priorities also get the frames that this rule matches.
    #[must_use]
    pub fn without_trap(self) -> Self {
        Rule { traps: false, ..self }
    }
    /// Drops the frames that this rule matches.
    #[must_use]
    pub fn dropping(self) -> Self {
        Rule { drops: true, ..self }
    }
    pub(crate) fn takes(&self, frame: &Frame) -> bool {
        (self.kind != Kind::McDefault || frame.is_to_group())
            && self.specs.iter().all(|s| s.takes(frame))
    }
}
