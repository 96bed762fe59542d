//! Converts socket addresses from and to C.

use std::mem::size_of;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use adverb_ndk::NtStatus;
use libc::{AF_INET, AF_INET6, sockaddr_in, sockaddr_in6};

use crate::abi::{PSOCKADDR, ULONG};

/// Reads an address.
///
/// # Errors
/// `INVALID_PARAMETER`: null, too short for the family, or neither IPv4 nor IPv6.
///
/// # Safety
/// "What C promises", 2, for `length` bytes.
pub unsafe fn read(address: PSOCKADDR, length: ULONG) -> Result<SocketAddr, NtStatus> {
    let length = length as usize;
    if address.is_null() || length < size_of::<libc::sa_family_t>() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    // SAFETY: the caller promises `length` readable bytes, and `length` covers the family.
    let family = unsafe { (&raw const (*address).sa_family).read_unaligned() };
    match i32::from(family) {
        AF_INET if length >= size_of::<sockaddr_in>() => {
            // SAFETY: the caller promises `length` readable bytes, and `length` covers the
            // structure.
            let v4 = unsafe { address.cast::<sockaddr_in>().read_unaligned() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        AF_INET6 if length >= size_of::<sockaddr_in6>() => {
            // SAFETY: the caller promises `length` readable bytes, and `length` covers the
            // structure.
            let v6 = unsafe { address.cast::<sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Ok(SocketAddrV6::new(
                ip,
                u16::from_be(v6.sin6_port),
                v6.sin6_flowinfo,
                v6.sin6_scope_id,
            )
            .into())
        }
        _ => Err(NtStatus::INVALID_PARAMETER),
    }
}

/// Writes an address to a buffer of `*length` bytes, and the address's size to `*length`.
///
/// # Errors
/// `BUFFER_TOO_SMALL` (`*length` has the needed size), `INVALID_PARAMETER` for null.
///
/// # Safety
/// "What C promises", 2.
pub unsafe fn write(
    from: SocketAddr,
    address: PSOCKADDR,
    length: *mut ULONG,
) -> Result<(), NtStatus> {
    // SAFETY: the caller promises a pointer from C.
    let length = unsafe { length.as_mut() }.ok_or(NtStatus::INVALID_PARAMETER)?;
    let room = std::mem::replace(length, size(&from));
    if room < *length {
        return Err(NtStatus::BUFFER_TOO_SMALL);
    }
    if address.is_null() {
        return Err(NtStatus::INVALID_PARAMETER);
    }
    match from {
        SocketAddr::V4(v4) => {
            let c = sockaddr_in {
                sin_family: AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from(*v4.ip()).to_be() },
                sin_zero: [0; 8],
            };
            // SAFETY: the caller promises `room` writable bytes, and the structure fits.
            unsafe { address.cast::<sockaddr_in>().write_unaligned(c) };
        }
        SocketAddr::V6(v6) => {
            let c = sockaddr_in6 {
                sin6_family: AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: the caller promises `room` writable bytes, and the structure fits.
            unsafe { address.cast::<sockaddr_in6>().write_unaligned(c) };
        }
    }
    Ok(())
}

fn size(address: &SocketAddr) -> ULONG {
    let size = match address {
        SocketAddr::V4(_) => size_of::<sockaddr_in>(),
        SocketAddr::V6(_) => size_of::<sockaddr_in6>(),
    };
    size as ULONG
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["127.0.0.1:4791", "0.0.0.0:0", "[::1]:65535", "[fe80::1%3]:7"] {
            let address: SocketAddr = text.parse().expect("an address");
            let mut buffer = [0xffu8; 64];
            let c: PSOCKADDR = buffer.as_mut_ptr().wrapping_add(1).cast();
            let mut length = 1;
            // SAFETY: the buffer has room, also from an odd address on.
            unsafe {
                assert_eq!(write(address, c, &mut length), Err(NtStatus::BUFFER_TOO_SMALL));
                assert_eq!(write(address, c, &mut length), Ok(()));
                assert_eq!(read(c, length), Ok(address));
                assert_eq!(read(c, length - 1), Err(NtStatus::INVALID_PARAMETER));
                assert_eq!(read(c, 0), Err(NtStatus::INVALID_PARAMETER));
                assert_eq!(
                    write(address, std::ptr::null_mut(), &mut length),
                    Err(NtStatus::INVALID_PARAMETER)
                );
            }
        }
    }
}
