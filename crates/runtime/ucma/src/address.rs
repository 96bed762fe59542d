//! Socket addresses in requests and replies.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address of a program's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Address {
    /// `sockaddr_in` or `sockaddr_in6`.
    Ip(SocketAddr),
    /// `sockaddr_ib`.
    Ib {
        /// The GID.
        gid: Ipv6Addr,
        /// Service id; its lower half is the port.
        sid: u64,
        /// Which bits of it count.
        mask: u64,
    },
}

impl Address {
    /// The IP address; `None` for one of InfiniBand.
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Ip(a) => Some(a.ip()),
            Address::Ib { .. } => None,
        }
    }

    /// Does it stand for all addresses?
    pub const fn is_any(&self) -> bool {
        match self {
            Address::Ip(a) => a.ip().is_unspecified(),
            Address::Ib { gid, .. } => gid.is_unspecified(),
        }
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        match self {
            Address::Ip(a) => a.port(),
            Address::Ib { sid, .. } => *sid as u16,
        }
    }

    /// The same with another port.
    pub const fn with_port(mut self, port: u16) -> Address {
        match &mut self {
            Address::Ip(a) => a.set_port(port),
            Address::Ib { sid, .. } => *sid = *sid & !0xffff | port as u64,
        }
        self
    }

    /// Are both of one family?
    pub const fn same_family(&self, other: &Address) -> bool {
        matches!(
            (self, other),
            (Address::Ip(SocketAddr::V4(_)), Address::Ip(SocketAddr::V4(_)))
                | (Address::Ip(SocketAddr::V6(_)), Address::Ip(SocketAddr::V6(_)))
                | (Address::Ib { .. }, Address::Ib { .. })
        )
    }

    /// The address that stands for all of this one's family.
    pub const fn any_of_family(&self) -> Address {
        match self {
            Address::Ip(SocketAddr::V4(_)) => {
                Address::Ip(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0))
            }
            Address::Ip(SocketAddr::V6(_)) => {
                Address::Ip(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 0))
            }
            Address::Ib { .. } => Address::Ib { gid: Ipv6Addr::UNSPECIFIED, sid: 0, mask: 0 },
        }
    }

    /// IPv6 link-local: means nothing without an interface.
    pub const fn is_link_local(&self) -> bool {
        matches!(self, Address::Ip(SocketAddr::V6(a)) if a.ip().segments()[0] & 0xffc0 == 0xfe80)
    }

    /// The interface that a link-local address names; 0: none.
    pub const fn scope(&self) -> u32 {
        match self {
            Address::Ip(SocketAddr::V6(a)) => a.scope_id(),
            _ => 0,
        }
    }
}
