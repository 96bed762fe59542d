//! Addresses by name: the C library's `getaddrinfo`, converted to RDMA terms.
//!
//! Programs free and replace members of these structures with `free` and `malloc`, so this module
//! allocates with `malloc` too.

use core::ffi::{c_char, c_int, c_void};
use core::ptr::{null, null_mut};

use libc::{addrinfo, sockaddr, socklen_t};

use crate::abi::cma::*;
use crate::device;
use crate::error::{Errno, ErrnoResult, zero_or_minus_one};
use adverb_abi::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, Plain};

/// The hints for the C library's `getaddrinfo`.
fn asked(hints: &rdma_addrinfo) -> addrinfo {
    // SAFETY: all fields are integers and pointers, for which zeros are valid.
    let mut ask: addrinfo = unsafe { core::mem::zeroed() };
    let passive = hints.ai_flags & RAI_PASSIVE != 0;
    if passive {
        ask.ai_flags |= libc::AI_PASSIVE;
    }
    if hints.ai_flags & RAI_NUMERICHOST != 0 {
        ask.ai_flags |= libc::AI_NUMERICHOST;
    }
    if hints.ai_family != AF_IB {
        ask.ai_family = hints.ai_family;
    }
    ask.ai_socktype = match hints.ai_qp_type as u32 {
        IBV_QPT_RC | IBV_QPT_UC | IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => libc::SOCK_STREAM,
        IBV_QPT_UD => libc::SOCK_DGRAM,
        _ => 0,
    };
    ask.ai_protocol = match (hints.ai_port_space as u32, ask.ai_socktype) {
        (PS_TCP, _) | (PS_IB, libc::SOCK_STREAM) => libc::IPPROTO_TCP,
        (PS_IPOIB | PS_UDP, _) | (PS_IB, libc::SOCK_DGRAM) => libc::IPPROTO_UDP,
        _ => 0,
    };
    ask
}

/// A copy of an address.
///
/// # Safety
/// `from` points to an address of `len` bytes.
unsafe fn copied(from: *const sockaddr, len: socklen_t) -> ErrnoResult<(*mut sockaddr, socklen_t)> {
    // SAFETY: the caller's word; the copy has room for `len` bytes.
    unsafe {
        let to = libc::malloc(len as usize);
        if to.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), len as usize);
        Ok((to.cast(), len))
    }
}

/// Converts an IPv6 address to a GID address, with the service id of the port space.
///
/// # Safety
/// `from` points to an address of `len` bytes.
unsafe fn as_gid(
    ps: c_int,
    from: *const sockaddr,
    len: socklen_t,
) -> ErrnoResult<(*mut sockaddr, socklen_t)> {
    if (len as usize) < size_of::<libc::sockaddr_in6>() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's word; the length was checked above.
    let from = unsafe { from.cast::<libc::sockaddr_in6>().read_unaligned() };
    let port = u16::from_be(from.sin6_port);
    let mut raw = [0u8; 48];
    raw[..2].copy_from_slice(&(AF_IB as u16).to_ne_bytes());
    raw[2..4].copy_from_slice(&u16::MAX.to_be_bytes());
    raw[4..8].copy_from_slice(&from.sin6_flowinfo.to_ne_bytes());
    raw[8..24].copy_from_slice(&from.sin6_addr.s6_addr);
    raw[24..32].copy_from_slice(&(((ps as u64) << 16) | u64::from(port)).to_be_bytes());
    let space = if ps != 0 { !0xffff_u64 } else { 0 };
    let ports = if port != 0 { 0xffff } else { 0 };
    raw[32..40].copy_from_slice(&(space | ports).to_be_bytes());
    raw[40..].copy_from_slice(&u64::from(from.sin6_scope_id).to_ne_bytes());
    // SAFETY: `raw` has this length.
    unsafe { copied(raw.as_ptr().cast(), raw.len() as socklen_t) }
}

/// Converts a result of the C library.
///
/// # Safety
/// `found` is a result of `getaddrinfo`.
unsafe fn convert(to: &mut rdma_addrinfo, hints: &rdma_addrinfo, found: &addrinfo) -> ErrnoResult {
    to.ai_qp_type = match (hints.ai_qp_type, found.ai_socktype) {
        (0, libc::SOCK_STREAM) => IBV_QPT_RC as c_int,
        (0, libc::SOCK_DGRAM) => IBV_QPT_UD as c_int,
        (asked, _) => asked,
    };
    to.ai_port_space = match (hints.ai_port_space, found.ai_protocol) {
        (0, libc::IPPROTO_TCP) => PS_TCP as c_int,
        (0, libc::IPPROTO_UDP) => PS_UDP as c_int,
        (asked, _) => asked,
    };
    let family = RAI_FAMILY | RAI_NUMERICHOST;
    let gid = hints.ai_family == AF_IB && hints.ai_flags & family == family;
    to.ai_family = if gid { AF_IB } else { found.ai_family };
    // SAFETY: the caller's word.
    unsafe {
        let address = if gid {
            as_gid(to.ai_port_space, found.ai_addr, found.ai_addrlen)?
        } else {
            copied(found.ai_addr, found.ai_addrlen)?
        };
        let name = if found.ai_canonname.is_null() {
            null_mut()
        } else {
            libc::strdup(found.ai_canonname)
        };
        if hints.ai_flags & RAI_PASSIVE != 0 {
            to.ai_flags = RAI_PASSIVE;
            (to.ai_src_addr, to.ai_src_len) = address;
            to.ai_src_canonname = name;
        } else {
            (to.ai_dst_addr, to.ai_dst_len) = address;
            to.ai_dst_canonname = name;
        }
    }
    Ok(())
}

/// Why no address was found: a value of `getaddrinfo` (`EAI_*`), or an errno value.
#[derive(Clone, Copy, Debug)]
pub enum Why {
    /// `gai_strerror` explains it.
    Name(c_int),
    /// An errno value.
    Errno(Errno),
}

impl From<Errno> for Why {
    fn from(why: Errno) -> Self {
        Self::Errno(why)
    }
}

/// Fills a result.
///
/// # Safety
/// The strings are null or valid. The addresses in the hints have the lengths in the hints.
unsafe fn fill(
    to: &mut rdma_addrinfo,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<(), Why> {
    let none = rdma_addrinfo::zeroed();
    let wanted = hints.unwrap_or(&none);
    if node.is_null() && service.is_null() {
        to.ai_flags = wanted.ai_flags;
        to.ai_family = wanted.ai_family;
        to.ai_qp_type = wanted.ai_qp_type;
        to.ai_port_space = wanted.ai_port_space;
        if wanted.ai_dst_len > 0 {
            // SAFETY: the caller's word.
            (to.ai_dst_addr, to.ai_dst_len) =
                unsafe { copied(wanted.ai_dst_addr, wanted.ai_dst_len) }?;
        }
    } else {
        let ask = hints.map(asked);
        let mut found = null_mut();
        // SAFETY: the strings are the caller's. `found` has room for the result, and is freed after
        // it has been copied.
        unsafe {
            let code = libc::getaddrinfo(
                node,
                service,
                ask.as_ref().map_or(null(), |a| a),
                &raw mut found,
            );
            if code != 0 {
                return Err(Why::Name(code));
            }
            let taken = convert(to, wanted, &*found);
            libc::freeaddrinfo(found);
            taken?;
        }
    }
    if to.ai_src_len == 0 && wanted.ai_src_len > 0 {
        // SAFETY: the caller's word.
        (to.ai_src_addr, to.ai_src_len) = unsafe { copied(wanted.ai_src_addr, wanted.ai_src_len) }?;
    }
    Ok(())
}

/// Looks up an address.
///
/// # Safety
/// The strings are null or valid. The addresses in the hints have the lengths in the hints.
pub unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Result<*mut rdma_addrinfo, Why> {
    if node.is_null() && service.is_null() && hints.is_none() {
        return Err(Errno(libc::EINVAL).into());
    }
    device::require()?;
    if hints.is_some_and(|h| h.ai_flags & RAI_SA != 0) {
        // The list of services of a subnet administrator; Ethernet has no subnet administrator.
        return Err(Errno(libc::EOPNOTSUPP).into());
    }
    // SAFETY: calloc takes a count and a size; all zeros are an empty result; the rest is the
    // caller's word.
    unsafe {
        let to = libc::calloc(1, size_of::<rdma_addrinfo>()).cast::<rdma_addrinfo>();
        if to.is_null() {
            return Err(Errno(libc::ENOMEM).into());
        }
        fill(&mut *to, node, service, hints).map(|()| to).inspect_err(|_| rdma_freeaddrinfo(to))
    }
}

/// `rdma_getaddrinfo`: 0, or -1 with `errno` set, or an error code of `getaddrinfo` for
/// `gai_strerror`.
pub unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    res: *mut *mut rdma_addrinfo,
) -> c_int {
    if res.is_null() {
        return zero_or_minus_one(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller's word.
    match unsafe { look_up(node, service, hints.as_ref()) } {
        Ok(found) => {
            // SAFETY: the caller's word.
            unsafe { res.write(found) };
            0
        }
        Err(Why::Name(code)) => code,
        Err(Why::Errno(why)) => zero_or_minus_one(Err(why)),
    }
}

/// `rdma_freeaddrinfo`: frees the whole list.
pub unsafe extern "C" fn rdma_freeaddrinfo(res: *mut rdma_addrinfo) {
    let mut next = res;
    while !next.is_null() {
        // SAFETY: every part was allocated with malloc, here or by the program.
        unsafe {
            let one = next.read();
            let parts: [*mut c_void; 6] = [
                one.ai_connect,
                one.ai_route,
                one.ai_src_canonname.cast(),
                one.ai_dst_canonname.cast(),
                one.ai_src_addr.cast(),
                one.ai_dst_addr.cast(),
            ];
            for part in parts {
                libc::free(part);
            }
            libc::free(next.cast());
            next = one.ai_next;
        }
    }
}
