//! Binding and resolving the addresses of an id.

use core::ffi::c_int;

use libc::{sockaddr, sockaddr_storage};

use crate::abi::cma::*;
use crate::error::{ErrnoResult, zero_or_minus_one};
use crate::id::{Id, address};
use crate::query::{IB_ADDRESS, copy_address, query_address, query_address_only, query_gids};
use crate::{command, event};
use adverb_abi::rdma_user_cm::{
    Request, rdma_ucm_bind, rdma_ucm_resolve_addr, rdma_ucm_resolve_route,
};

/// Whether this is a loopback address.
fn is_loopback(address: &sockaddr_storage) -> bool {
    let at: *const sockaddr_storage = address;
    // SAFETY: an address of each of these families has the size of its type, and fits in the
    // storage.
    unsafe {
        match c_int::from(address.ss_family) {
            libc::AF_INET => {
                (*at.cast::<libc::sockaddr_in>()).sin_addr.s_addr.to_ne_bytes()[0] == 127
            }
            libc::AF_INET6 => {
                core::net::Ipv6Addr::from((*at.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr)
                    .is_loopback()
            }
            _ => false,
        }
    }
}

/// Binds an id to an address.
///
/// # Safety
/// `to` is null, or points to an address with the length of its family.
pub unsafe fn bind(id: &Id, to: *const sockaddr) -> ErrnoResult {
    // SAFETY: the caller's word.
    unsafe { bind_address(id, to) }?;
    query_address(id)?;
    query_gids(id)
}

/// # Safety
/// As for [`bind`].
unsafe fn bind_address(id: &Id, to: *const sockaddr) -> ErrnoResult {
    // SAFETY: the caller's word.
    let (addr, len) = unsafe { address(to) }?;
    let bind = rdma_ucm_bind { id: id.handle.get(), addr_size: len as u16, reserved: 0, addr };
    command::perform(id.fd(), Request::Bind(bind))
}

/// Resolves the device for a destination address.
///
/// # Safety
/// Both addresses have the length of their family. The source may be null.
pub unsafe fn resolve(
    id: &Id,
    src: *const sockaddr,
    dst: *const sockaddr,
    timeout: c_int,
) -> ErrnoResult {
    // SAFETY: the caller's word; all zeros are a valid address.
    let ((dst_addr, dst_len), (src_addr, src_len)) = unsafe {
        let none = (core::mem::zeroed::<sockaddr_storage>(), 0);
        (address(dst)?, if src.is_null() { none } else { address(src)? })
    };
    let resolve = rdma_ucm_resolve_addr {
        id: id.handle.get(),
        timeout_ms: timeout as u32,
        src_size: src_len as u16,
        dst_size: dst_len as u16,
        reserved: 0,
        src_addr,
        dst_addr,
    };
    command::perform(id.fd(), Request::ResolveAddr(resolve))?;
    copy_address(&id.public.route.addr.dst, &dst_addr, dst_len as u16);
    event::complete(id)
}

/// Resolves the path to the destination address.
pub fn resolve_route(id: &Id, timeout: c_int) -> ErrnoResult {
    let resolve = rdma_ucm_resolve_route { id: id.handle.get(), timeout_ms: timeout as u32 };
    command::perform(id.fd(), Request::ResolveRoute(resolve))?;
    event::complete(id)
}

/// The port of an address, in network order.
fn port_of(address: &sockaddr_storage) -> u16 {
    let at: *const sockaddr_storage = address;
    // SAFETY: an address of each of these families has the size of its type, and fits in the
    // storage.
    unsafe {
        match c_int::from(address.ss_family) {
            libc::AF_INET => (*at.cast::<libc::sockaddr_in>()).sin_port,
            libc::AF_INET6 => (*at.cast::<libc::sockaddr_in6>()).sin6_port,
            // The last two bytes of the service id, which follows the GID.
            AF_IB => at.cast::<u8>().add(IB_ADDRESS + 16 + 6).cast::<u16>().read_unaligned(),
            _ => 0,
        }
    }
}

/// `rdma_bind_addr`: 0, or -1 with `errno` set.
///
/// In Linux a loopback address means all devices: the id has no device (`verbs` is null) until it
/// has a peer. Here a loopback address belongs to the loopback device, and an id with an event
/// channel gets this device at once. A synchronous id gets the device when it listens, or when an
/// object is created for it. The reason is libfabric: it binds a synchronous id for a moment, and
/// if `verbs` is set, libfabric uses this device only.
pub unsafe extern "C-unwind" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| bind_as_asked(id, addr)) })
}

/// # Safety
/// `to` is null, or points to an address with the length of its family.
unsafe fn bind_as_asked(id: &Id, to: *const sockaddr) -> ErrnoResult {
    // SAFETY: the caller's word.
    unsafe {
        if !id.with(|state| state.sync) || !address(to).is_ok_and(|(to, _)| is_loopback(&to)) {
            return bind(id, to);
        }
        bind_address(id, to)?;
    }
    query_address_only(id)?;
    query_gids(id)
}

/// `rdma_resolve_addr`: 0, or -1 with `errno` set; the timeout is in milliseconds.
pub unsafe extern "C-unwind" fn rdma_resolve_addr(
    id: *mut rdma_cm_id,
    src: *mut sockaddr,
    dst: *mut sockaddr,
    timeout: c_int,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| resolve(id, src, dst, timeout)) })
}

/// `rdma_resolve_route`: 0, or -1 with `errno` set; the timeout is in milliseconds.
pub unsafe extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout: c_int) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| resolve_route(id, timeout)) })
}

/// `rdma_get_src_port`, in network order.
pub unsafe extern "C-unwind" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's word.
    unsafe { Id::of(id) }.map_or(0, |id| port_of(&id.public.route.addr.src.get()))
}

/// `rdma_get_dst_port`, in network order.
pub unsafe extern "C-unwind" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's word.
    unsafe { Id::of(id) }.map_or(0, |id| port_of(&id.public.route.addr.dst.get()))
}
