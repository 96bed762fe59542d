//! Socket addresses of programs as values, and back.
use crate::abi::rdma_user_cm::Integers;
use adverb_ucma::Address;
use libc::sockaddr_storage;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

const AF_INET: u16 = libc::AF_INET as u16;
const AF_INET6: u16 = libc::AF_INET6 as u16;
/// Addresses that are GIDs with a service; the C library's headers lack the name.
const AF_IB: u16 = 27;

/// Reads an address; `None` for another family, or for fewer bytes than the family has.
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

/// Bytes of the structure of an address.
pub const fn size(address: &Address) -> u16 {
    match address {
        Address::Ip(SocketAddr::V4(_)) => 16,
        Address::Ip(SocketAddr::V6(_)) => 28,
        Address::Ib { .. } => 48,
    }
}

/// Writes an address.
pub fn write(address: &Address) -> sockaddr_storage {
    let mut out = [0; size_of::<sockaddr_storage>()];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    match address {
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
    sockaddr_storage::of_bytes(&out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ucm_1_addresses_come_back_as_they_were() {
        let ips =
            ["1.2.3.4:5", "[fe80::1%3]:77", "[::]:0"].map(|s| Address::Ip(s.parse().unwrap()));
        let ib = Address::Ib { gid: "fe80::2".parse().unwrap(), sid: 0x0106_0007, mask: u64::MAX };
        for address in ips.into_iter().chain([ib]) {
            let written = write(&address);
            assert_eq!(read(written.bytes()), Some(address));
            assert_eq!(read(&written.bytes()[..size(&address).into()]), Some(address));
            assert_eq!(address.with_port(9).port(), 9);
        }
        assert_eq!(read(&[0; 128]), None);
        assert_eq!(read(&AF_INET.to_ne_bytes()), None, "no bytes behind the family");
    }
}
