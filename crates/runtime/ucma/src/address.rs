//! Socket addresses in commands and responses.
use crate::abi::STORAGE;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const AF_IB: u16 = 27;

/// Bytes of a `sockaddr_ib`.
pub const SOCKADDR_IB: u16 = 48;

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
    /// Reads one; `None` for another family.
    pub fn read(bytes: &[u8]) -> Option<Address> {
        let at = |from: usize, len: usize| bytes.get(from..from + len);
        let family = u16::from_ne_bytes(at(0, 2)?.try_into().ok()?);
        let port = || Some(u16::from_be_bytes(at(2, 2)?.try_into().ok()?));
        let u64_at = |from| Some(u64::from_be_bytes(at(from, 8)?.try_into().ok()?));
        let v6_at = |from| Some(Ipv6Addr::from(<[u8; 16]>::try_from(at(from, 16)?).ok()?));
        Some(match family {
            AF_INET => {
                let ip: [u8; 4] = at(4, 4)?.try_into().ok()?;
                Address::Ip(SocketAddr::new(Ipv4Addr::from(ip).into(), port()?))
            }
            AF_INET6 => {
                let flow = u32::from_ne_bytes(at(4, 4)?.try_into().ok()?);
                let scope = u32::from_ne_bytes(at(24, 4)?.try_into().ok()?);
                Address::Ip(SocketAddrV6::new(v6_at(8)?, port()?, flow, scope).into())
            }
            AF_IB => Address::Ib { gid: v6_at(8)?, sid: u64_at(24)?, mask: u64_at(32)? },
            _ => return None,
        })
    }

    /// Bytes of its structure.
    pub const fn size(&self) -> u16 {
        match self {
            Address::Ip(SocketAddr::V4(_)) => 16,
            Address::Ip(SocketAddr::V6(_)) => 28,
            Address::Ib { .. } => SOCKADDR_IB,
        }
    }

    /// Writes it to as many bytes as a response has for it.
    pub fn write(&self) -> [u8; STORAGE] {
        let mut out = [0; STORAGE];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        match self {
            Address::Ip(SocketAddr::V4(a)) => {
                put(0, &AF_INET.to_ne_bytes());
                put(2, &a.port().to_be_bytes());
                put(4, &a.ip().octets());
            }
            Address::Ip(SocketAddr::V6(a)) => {
                put(0, &AF_INET6.to_ne_bytes());
                put(2, &a.port().to_be_bytes());
                put(4, &a.flowinfo().to_ne_bytes());
                put(8, &a.ip().octets());
                put(24, &a.scope_id().to_ne_bytes());
            }
            Address::Ib { gid, sid, mask } => {
                put(0, &AF_IB.to_ne_bytes());
                put(2, &0xffff_u16.to_be_bytes());
                put(8, &gid.octets());
                put(24, &sid.to_be_bytes());
                put(32, &mask.to_be_bytes());
            }
        }
        out
    }

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
        self.size() == other.size()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucm_1_addresses_come_back_as_they_were() {
        let ips = ["1.2.3.4:5", "[fe80::1%3]:77", "[::]:0"].map(|s| Address::Ip(s.parse().unwrap()));
        let ib = Address::Ib { gid: "fe80::2".parse().unwrap(), sid: 0x0106_0007, mask: u64::MAX };
        for address in ips.into_iter().chain([ib]) {
            assert_eq!(Address::read(&address.write()), Some(address));
            assert_eq!(Address::read(&address.write()[..address.size() as usize]), Some(address));
            assert_eq!(address.with_port(9).port(), 9);
        }
        assert_eq!(Address::read(&[0; 128]), None);
        assert_eq!(Address::read(&AF_INET.to_ne_bytes()), None, "no bytes behind the family");
    }
}
