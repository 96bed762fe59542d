//! Addresses of an id: bind, resolve, and what the other side knows of them.

use core::ffi::c_int;

use libc::{sockaddr, sockaddr_storage};

use crate::abi::cma::*;
use crate::abi::kernel::*;
use crate::abi::verbs::{ibv_gid, ibv_sa_path_rec};
use crate::command;
use crate::error::{Errno, Outcome, zero_or_minus_one};
use crate::id::{AF_IB, Id, address};

/// Where the GID stands in an address of the family `AF_IB`: behind family, partition key and flow.
const IB_ADDRESS: usize = 8;

/// Fetches the addresses and, once it is known, the device.
pub fn query_address(id: &Id) -> Outcome {
    let found = query_address_only(id)?;
    id.set_device(found.node_guid, found.ibdev_index, found.port_num, found.pkey)
}

/// Fetches the addresses; the device is for the caller to set.
fn query_address_only(id: &Id) -> Outcome<Addresses> {
    // SAFETY: the answer of this option; integers.
    let found: Addresses = unsafe { command::query(id.fd(), id.handle.get(), QUERY_ADDR) }?;
    copy_address(&id.public.route.addr.src, &found.src_addr, found.src_size);
    copy_address(&id.public.route.addr.dst, &found.dst_addr, found.dst_size);
    Ok(found)
}

/// Sets the device of an id that was bound without it ([`rdma_bind_addr`]), before objects are made
/// for the id.
pub fn set_bound_device(id: &Id) -> Outcome {
    let bound = id.public.route.addr.src.get().ss_family != 0;
    if bound && id.public.verbs.get().is_null() { query_address(id) } else { Ok(()) }
}

/// Whether an address is one of a host to itself.
fn is_loopback(address: &sockaddr_storage) -> bool {
    let at: *const sockaddr_storage = address;
    // SAFETY: an address of these families is as long as the type says and fits the storage.
    unsafe {
        match c_int::from(address.ss_family) {
            libc::AF_INET => (*at.cast::<libc::sockaddr_in>()).sin_addr.s_addr.to_ne_bytes()[0] == 127,
            libc::AF_INET6 => {
                core::net::Ipv6Addr::from((*at.cast::<libc::sockaddr_in6>()).sin6_addr.s6_addr).is_loopback()
            }
            _ => false,
        }
    }
}

fn copy_address(to: &core::cell::Cell<sockaddr_storage>, from: &sockaddr_storage, size: u16) {
    let size = usize::from(size).min(size_of::<sockaddr_storage>());
    let mut whole = to.get();
    // SAFETY: both have room for the size; any bytes are an address.
    unsafe {
        core::ptr::copy_nonoverlapping((&raw const *from).cast::<u8>(), (&raw mut whole).cast::<u8>(), size);
    }
    to.set(whole);
}

/// Fetches the GIDs.
pub fn query_gids(id: &Id) -> Outcome {
    // SAFETY: the answer of this option; integers.
    let found: Addresses = unsafe { command::query(id.fd(), id.handle.get(), QUERY_GID) }?;
    id.public.route.addr.ibaddr.sgid.set(gid_of(&found.src_addr));
    id.public.route.addr.ibaddr.dgid.set(gid_of(&found.dst_addr));
    Ok(())
}

fn gid_of(address: &sockaddr_storage) -> ibv_gid {
    // SAFETY: sixteen bytes within the address.
    let raw = unsafe { (&raw const *address).cast::<u8>().add(IB_ADDRESS).cast::<[u8; 16]>().read() };
    ibv_gid(raw)
}

/// Fetches the paths.
pub fn query_paths(id: &Id) -> Outcome {
    // SAFETY: the answer of this option; integers.
    let found: Paths = unsafe { command::query(id.fd(), id.handle.get(), QUERY_PATH) }?;
    let paths = &found.path_data[..(found.num_paths as usize).min(PATHS)];
    if paths.is_empty() {
        return Ok(());
    }
    // SAFETY: a number and a size; what an earlier call left is ours; the list has room for what is
    // written.
    unsafe {
        let list = libc::calloc(paths.len(), size_of::<ibv_sa_path_rec>()).cast::<ibv_sa_path_rec>();
        if list.is_null() {
            return Err(Errno(libc::ENOMEM));
        }
        for (i, path) in paths.iter().enumerate() {
            list.add(i).write(path_record(path));
        }
        libc::free(id.public.route.path_rec.replace(list).cast());
    }
    id.public.route.num_paths.set(paths.len() as c_int);
    Ok(())
}

/// A path record from its form on the wire (IBTA, PathRecord) into the header's.
pub fn path_record(from: &PathData) -> ibv_sa_path_rec {
    let raw = &from.path_rec;
    let gid = |at: usize| ibv_gid(raw[at..at + 16].try_into().expect("sixteen bytes"));
    // Fields that stay in network order, as the header has them.
    let wire16 = |at: usize| u16::from_ne_bytes([raw[at], raw[at + 1]]);
    let flow_hop = u32::from_be_bytes([raw[44], raw[45], raw[46], raw[47]]);
    // Of a selector and its value only values that hold exactly come.
    let exactly = 2;
    ibv_sa_path_rec {
        dgid: gid(8),
        sgid: gid(24),
        dlid: wire16(40),
        slid: wire16(42),
        raw_traffic: 0,
        flow_label: ((flow_hop >> 8) & 0xf_ffff).to_be(),
        hop_limit: flow_hop as u8,
        traffic_class: raw[48],
        reversible: c_int::from(raw[49] >> 7),
        numb_path: 1,
        pkey: wire16(50),
        sl: raw[53] & 0xf,
        mtu_selector: exactly,
        mtu: raw[54] & 0x3f,
        rate_selector: exactly,
        rate: raw[55] & 0x3f,
        packet_life_time_selector: exactly,
        packet_life_time: raw[56] & 0x3f,
        preference: from.flags as u8,
    }
}

/// Binds an id to an address.
///
/// # Safety
/// Null, or an address as long as its family says.
pub unsafe fn bind(id: &Id, to: *const sockaddr) -> Outcome {
    // SAFETY: the caller's word.
    unsafe { bind_address(id, to) }?;
    query_address(id)?;
    query_gids(id)
}

/// # Safety
/// Null, or an address as long as its family says.
unsafe fn bind_address(id: &Id, to: *const sockaddr) -> Outcome {
    // SAFETY: the caller's word.
    let (addr, len) = unsafe { address(to) }?;
    command::perform(id.fd(), Bind { id: id.handle.get(), addr_size: len as u16, reserved: 0, addr })
}

/// Finds the device that reaches an address.
///
/// # Safety
/// Addresses as long as their families say; the source may be null.
pub unsafe fn resolve(id: &Id, src: *const sockaddr, dst: *const sockaddr, timeout: c_int) -> Outcome {
    // SAFETY: the caller's word; zeros are an address.
    let ((dst_addr, dst_len), (src_addr, src_len)) = unsafe {
        let none = (core::mem::zeroed::<sockaddr_storage>(), 0);
        (address(dst)?, if src.is_null() { none } else { address(src)? })
    };
    let body = ResolveAddr {
        id: id.handle.get(),
        timeout_ms: timeout as u32,
        src_size: src_len as u16,
        dst_size: dst_len as u16,
        reserved: 0,
        src_addr,
        dst_addr,
    };
    command::perform(id.fd(), body)?;
    copy_address(&id.public.route.addr.dst, &dst_addr, dst_len as u16);
    id.complete()
}

/// Finds the path to the address.
pub fn resolve_route(id: &Id, timeout: c_int) -> Outcome {
    command::perform(id.fd(), ResolveRoute { id: id.handle.get(), timeout_ms: timeout as u32 })?;
    id.complete()
}

/// The port of an address, in network order.
fn port_of(address: &sockaddr_storage) -> u16 {
    let at: *const sockaddr_storage = address;
    // SAFETY: an address of these families is as long as the type says and fits the storage.
    unsafe {
        match c_int::from(address.ss_family) {
            libc::AF_INET => (*at.cast::<libc::sockaddr_in>()).sin_port,
            libc::AF_INET6 => (*at.cast::<libc::sockaddr_in6>()).sin6_port,
            // The last two bytes of the service id, which stands behind the GID.
            AF_IB => at.cast::<u8>().add(IB_ADDRESS + 16 + 6).cast::<u16>().read_unaligned(),
            _ => 0,
        }
    }
}

/// `rdma_bind_addr`: 0, or -1 with `errno` set.
///
/// To Linux a loopback address stands for all devices: the id has none (`verbs` is null) until it
/// has a peer. Here the address is the loopback device's, and an id with an event channel has that
/// device at once. An id in synchronous mode has the device when it listens or when an object is
/// made for the id: libfabric binds such an id for a moment and takes `verbs` for the only device
/// to be used, if there is one.
///
/// # Safety
/// An id that exists, and an address as long as its family says.
pub unsafe extern "C-unwind" fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| bind_as_asked(id, addr)) })
}

/// # Safety
/// Null, or an address as long as its family says.
unsafe fn bind_as_asked(id: &Id, to: *const sockaddr) -> Outcome {
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
///
/// # Safety
/// An id that exists, and addresses as long as their families say; the source may be null.
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
///
/// # Safety
/// An id that exists.
pub unsafe extern "C-unwind" fn rdma_resolve_route(id: *mut rdma_cm_id, timeout: c_int) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| resolve_route(id, timeout)) })
}

/// `rdma_get_src_port`, in network order.
///
/// # Safety
/// An id that exists.
pub unsafe extern "C-unwind" fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's word.
    unsafe { Id::of(id) }.map_or(0, |id| port_of(&id.public.route.addr.src.get()))
}

/// `rdma_get_dst_port`, in network order.
///
/// # Safety
/// An id that exists.
pub unsafe extern "C-unwind" fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
    // SAFETY: the caller's word.
    unsafe { Id::of(id) }.map_or(0, |id| port_of(&id.public.route.addr.dst.get()))
}
