//! Socket addresses in requests and replies.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// An address that a program gives or reads.
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
        /// The bits of `sid` that count.
        mask: u64,
    },
}

impl Address {
    /// The IP address; `None` for an InfiniBand address.
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Ip(a) => Some(a.ip()),
            Address::Ib { .. } => None,
        }
    }

    /// Is this the wildcard address of its family (`0.0.0.0`, `::` or the zero GID)?
    pub const fn is_any(&self) -> bool {
        match self {
            Address::Ip(a) => a.ip().is_unspecified(),
            Address::Ib { gid, .. } => gid.is_unspecified(),
        }
    }

    /// Is this `127.0.0.1` or `::1`?
    pub fn is_localhost(&self) -> bool {
        let ip = self.ip();
        ip == Some(Ipv4Addr::LOCALHOST.into()) || ip == Some(Ipv6Addr::LOCALHOST.into())
    }

    /// The port.
    pub const fn port(&self) -> u16 {
        match self {
            Address::Ip(a) => a.port(),
            Address::Ib { sid, .. } => *sid as u16,
        }
    }

    /// The same address with another port.
    pub const fn with_port(mut self, port: u16) -> Address {
        match &mut self {
            Address::Ip(a) => a.set_port(port),
            Address::Ib { sid, .. } => *sid = *sid & !0xffff | port as u64,
        }
        self
    }

    /// Do both addresses belong to the same family?
    pub const fn same_family(&self, other: &Address) -> bool {
        matches!(
            (self, other),
            (Address::Ip(SocketAddr::V4(_)), Address::Ip(SocketAddr::V4(_)))
                | (Address::Ip(SocketAddr::V6(_)), Address::Ip(SocketAddr::V6(_)))
                | (Address::Ib { .. }, Address::Ib { .. })
        )
    }

    /// The wildcard address of the same family.
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

    /// Is this an IPv6 link-local address? Such an address needs an interface to have a meaning.
    pub const fn is_link_local(&self) -> bool {
        matches!(self, Address::Ip(SocketAddr::V6(a)) if a.ip().segments()[0] & 0xffc0 == 0xfe80)
    }

    /// A link-local address that names no interface, with this interface; all others as they are.
    pub const fn with_scope(mut self, scope: u32) -> Address {
        if self.is_link_local()
            && let Address::Ip(SocketAddr::V6(a)) = &mut self
            && a.scope_id() == 0
        {
            a.set_scope_id(scope);
        }
        self
    }

    /// The interface index that a link-local address names; 0 if the address names none.
    pub const fn scope(&self) -> u32 {
        match self {
            Address::Ip(SocketAddr::V6(a)) => a.scope_id(),
            _ => 0,
        }
    }
}
