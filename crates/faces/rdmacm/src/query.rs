//! Queries to the connection manager about an id: addresses, device, paths.

use core::ffi::c_int;

use libc::sockaddr_storage;

use crate::command;
use crate::error::{Errno, ErrnoResult};
use crate::id::Id;
use adverb_abi::rdma_user_cm::*;
use adverb_abi::{ibv_gid, ibv_sa_path_rec};

/// Offset of the GID in an `AF_IB` address, after family, partition key and flow.
pub const IB_ADDRESS: usize = 8;

/// Fetches the addresses and, if known, the device.
pub fn query_address(id: &Id) -> ErrnoResult {
    let found = query_address_only(id)?;
    id.set_device(found.node_guid, found.ibdev_index, found.port_num, found.pkey)
}

/// Fetches the addresses. The caller sets the device.
pub fn query_address_only(id: &Id) -> ErrnoResult<rdma_ucm_query_addr_resp> {
    let found: rdma_ucm_query_addr_resp =
        command::query(id.fd(), id.handle.get(), RDMA_USER_CM_QUERY_ADDR)?;
    copy_address(&id.public.route.addr.src, &found.src_addr, found.src_size);
    copy_address(&id.public.route.addr.dst, &found.dst_addr, found.dst_size);
    Ok(found)
}

/// Sets the device of an id bound without a device (`rdma_bind_addr`). Called before an object is
/// created for the id.
pub fn set_bound_device(id: &Id) -> ErrnoResult {
    let bound = id.public.route.addr.src.get().ss_family != 0;
    if bound && id.public.verbs.get().is_null() { query_address(id) } else { Ok(()) }
}

pub fn copy_address(to: &core::cell::Cell<sockaddr_storage>, from: &sockaddr_storage, size: u16) {
    let size = usize::from(size).min(size_of::<sockaddr_storage>());
    let mut whole = to.get();
    // SAFETY: both sides have room for `size` bytes; any bytes are a valid address.
    unsafe {
        core::ptr::copy_nonoverlapping(
            (&raw const *from).cast::<u8>(),
            (&raw mut whole).cast::<u8>(),
            size,
        );
    }
    to.set(whole);
}

/// Fetches the GIDs.
pub fn query_gids(id: &Id) -> ErrnoResult {
    let found: rdma_ucm_query_addr_resp =
        command::query(id.fd(), id.handle.get(), RDMA_USER_CM_QUERY_GID)?;
    id.public.route.addr.ibaddr.sgid.set(gid_of(&found.src_addr));
    id.public.route.addr.ibaddr.dgid.set(gid_of(&found.dst_addr));
    Ok(())
}

fn gid_of(address: &sockaddr_storage) -> ibv_gid {
    // SAFETY: the sixteen bytes are within the address.
    let raw =
        unsafe { (&raw const *address).cast::<u8>().add(IB_ADDRESS).cast::<[u8; 16]>().read() };
    ibv_gid { raw }
}

/// Fetches the paths.
pub fn query_paths(id: &Id) -> ErrnoResult {
    let found: rdma_ucm_query_path_resp =
        command::query(id.fd(), id.handle.get(), RDMA_USER_CM_QUERY_PATH)?;
    let paths = &found.path_data[..(found.num_paths as usize).min(found.path_data.len())];
    if paths.is_empty() {
        return Ok(());
    }
    // SAFETY: calloc takes a count and a size. The old list belongs to us. The new list has room
    // for all paths.
    unsafe {
        let list =
            libc::calloc(paths.len(), size_of::<ibv_sa_path_rec>()).cast::<ibv_sa_path_rec>();
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

/// Converts a path record from its wire format (IBTA, PathRecord) to the header's type.
pub fn path_record(from: &ib_path_rec_data) -> ibv_sa_path_rec {
    let raw = &from.path_rec;
    let gid = |at: usize| ibv_gid { raw: raw[at..at + 16].try_into().expect("sixteen bytes") };
    // Fields that stay in network order, as in the header.
    let wire16 = |at: usize| u16::from_ne_bytes([raw[at], raw[at + 1]]);
    let flow_hop = u32::from_be_bytes([raw[44], raw[45], raw[46], raw[47]]);
    // Of each selector and value, only exact values occur.
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
