//! Multicast groups of datagram ids.

use core::cell::Cell;
use core::ffi::{c_int, c_void};

use libc::{sockaddr, sockaddr_storage};

use crate::abi::cma::*;
use crate::error::{Errno, ErrnoResult, zero_or_minus_one};
use crate::id::{Group, Id, address};
use crate::{command, event, verbs};
use adverb_abi::ibv_gid;
use adverb_abi::rdma_user_cm::*;

/// The bytes of an address, for comparing memberships.
fn bytes(addr: &sockaddr_storage, len: usize) -> Vec<u8> {
    // SAFETY: the storage is longer than any address, and initialised.
    unsafe { core::slice::from_raw_parts((&raw const *addr).cast::<u8>(), len) }.to_vec()
}

/// # Safety
/// `to` points to an address with the length of its family.
unsafe fn join(id: &Id, to: *const sockaddr, flags: u16, context: *mut c_void) -> ErrnoResult {
    // SAFETY: the caller's word.
    let (addr, len) = unsafe { address(to) }?;
    let group = Box::into_raw(Box::new(Group {
        id: id.pointer().cast(),
        context,
        completed: Cell::new(0),
        handle: Cell::new(0),
        gid: Cell::new(ibv_gid { raw: [0; 16] }),
        lid: Cell::new(0),
        flags,
        addr: bytes(&addr, len),
    }));
    // Added before the command, because another thread may read the event before the command
    // returns.
    id.with(|state| state.groups.push(group));
    let body = rdma_ucm_join_mcast {
        response: 0,
        uid: group.expose_provenance() as u64,
        id: id.handle.get(),
        addr_size: len as u16,
        join_flags: flags,
        addr,
    };
    match command::ask::<rdma_ucm_create_id_resp>(id.fd(), Request::JoinMcast(body)) {
        Ok(answer) => {
            // SAFETY: the membership exists until the program leaves the group.
            unsafe { (*group).handle.set(answer.id) };
            event::complete(id)
        }
        Err(why) => {
            id.with(|state| state.groups.retain(|g| *g != group));
            // SAFETY: the request failed, so no event of this membership will come.
            unsafe { Group::free(group) };
            Err(why)
        }
    }
}

/// # Safety
/// `from` points to an address with the length of its family.
unsafe fn leave(id: &Id, from: *const sockaddr) -> ErrnoResult {
    // SAFETY: the caller's word.
    let (addr, len) = unsafe { address(from) }?;
    let addr = bytes(&addr, len);
    let found = id.with(|state| {
        // SAFETY: every membership in the list exists.
        let at = state.groups.iter().rposition(|g| unsafe { (**g).addr == addr });
        at.map(|at| state.groups.remove(at))
    });
    let pointer = found.ok_or(Errno(libc::EADDRNOTAVAIL))?;
    // SAFETY: the membership was removed from the list, so only this call uses it.
    let group = unsafe { &*pointer };
    let qp = id.public.qp.get();
    if !qp.is_null() && group.flags != SEND_ONLY_MEMBER {
        // SAFETY: the id's queue pair exists. `detach` refuses if the queue pair was never
        // attached, and changes nothing.
        let _ = unsafe { verbs::detach(qp, &group.gid.get(), group.lid.get()) };
    }
    let body = rdma_ucm_destroy_id { response: 0, id: group.handle.get(), reserved: 0 };
    let left = command::ask::<rdma_ucm_destroy_id_resp>(id.fd(), Request::LeaveMcast(body));
    if let Ok(answer) = &left {
        id.wait_acknowledged(answer.events_reported, Some(group), c"rdma_leave_multicast");
    }
    // SAFETY: no event of the membership is left.
    unsafe { Group::free(pointer) };
    left.map(|_| ())
}

/// `rdma_join_multicast`: 0, or -1 with `errno` set. Events return `context`.
pub unsafe extern "C-unwind" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| join(id, addr, FULL_MEMBER, context)) })
}

/// `rdma_join_multicast_ex`: 0, or -1 with `errno` set: ENOTSUP for unknown flags, EINVAL for
/// missing attributes.
pub unsafe extern "C-unwind" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { attr.as_ref() }.ok_or(Errno(libc::EINVAL)).and_then(|attr| {
        if attr.comp_mask >= JOIN_RESERVED {
            return Err(Errno(libc::ENOTSUP));
        }
        if attr.comp_mask != JOIN_ADDRESS | JOIN_FLAGS || attr.join_flags >= MEMBER_RESERVED {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the caller's word.
        unsafe { Id::of(id).and_then(|id| join(id, attr.addr, attr.join_flags as u16, context)) }
    }))
}

/// `rdma_leave_multicast`: 0, or -1 with `errno` set; EADDRNOTAVAIL if the id is not a member.
/// Waits until the events of the membership have been acknowledged.
pub unsafe extern "C-unwind" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut sockaddr,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| leave(id, addr)) })
}
