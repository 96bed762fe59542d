//! Endpoints: one call creates a synchronous id with everything that its address needs.

use core::ffi::c_int;
use core::ptr::null_mut;

use crate::abi::cma::*;
use crate::error::{Errno, ErrnoResult, non_null, zero_or_minus_one};
use crate::id::{self, Id};
use crate::{address, event, options, qp, srq};
use adverb_abi::{ibv_pd, ibv_qp_init_attr};

/// Time limit for resolving the address, and again for resolving the route.
const TIMEOUT_MS: c_int = 2000;

/// # Safety
/// `from` is a result of `rdma_getaddrinfo` or equivalent; the other pointers are null or valid.
unsafe fn fill(
    id: &Id,
    from: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: Option<&mut ibv_qp_init_attr>,
) -> ErrnoResult {
    if from.ai_flags & RAI_PASSIVE != 0 {
        // SAFETY: the caller's word.
        unsafe { address::bind(id, from.ai_src_addr) }?;
        if !pd.is_null() {
            id.public.pd.set(pd);
        }
        let kept = attr.map(|attr| ibv_qp_init_attr { qp_type: from.ai_qp_type as u32, ..*attr });
        id.with(|state| state.qp_init_attr = kept);
        return Ok(());
    }
    // SAFETY: the caller's word.
    unsafe {
        address::resolve(id, from.ai_src_addr, from.ai_dst_addr, TIMEOUT_MS)?;
        if from.ai_route_len > 0 {
            options::set(id, OPTION_IB, OPTION_IB_PATH, from.ai_route, from.ai_route_len)?;
            event::complete(id)?;
        } else {
            address::resolve_route(id, TIMEOUT_MS)?;
        }
        if let Some(attr) = attr {
            attr.qp_type = from.ai_qp_type as u32;
            qp::create_plain(id, pd, attr)?;
        }
        if from.ai_connect_len > 0 && !from.ai_connect.is_null() {
            let data =
                core::slice::from_raw_parts(from.ai_connect.cast::<u8>(), from.ai_connect_len);
            id.with(|state| state.connect = data.to_vec());
        }
    }
    Ok(())
}

/// # Safety
/// As for [`rdma_create_ep`].
unsafe fn create(
    from: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> ErrnoResult<*mut rdma_cm_id> {
    // SAFETY: the caller's word; on failure the new id is destroyed before any other code can use
    // it.
    unsafe {
        let from = from.as_ref().ok_or(Errno(libc::EINVAL))?;
        let new =
            id::create(null_mut(), null_mut(), from.ai_port_space as u32, from.ai_qp_type as u32)?;
        Id::of(new).and_then(|id| fill(id, from, pd, attr.as_mut())).map(|()| new).inspect_err(
            |_| {
                rdma_destroy_ep(new);
            },
        )
    }
}

/// Takes the next request of a synchronous listener. Creates a queue pair if the endpoint was
/// created with queue pair attributes.
fn request(listener: &Id) -> ErrnoResult<*mut rdma_cm_id> {
    let (sync, attr) = listener.with(|s| (s.sync, s.qp_init_attr));
    if !sync {
        return Err(Errno(libc::EINVAL));
    }
    event::object::drop_of(listener);
    let event = event::next(listener.fd())?;
    // SAFETY: the event was just read and is not acknowledged.
    let (kind, status, new) = unsafe { ((*event).event, (*event).status, (*event).id) };
    let ready = match (kind, status) {
        (REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, status) if status != 0 => Err(Errno(status.wrapping_abs())),
        // SAFETY: the id of a request exists until the program destroys it.
        (CONNECT_REQUEST, _) => unsafe { Id::of(new) },
        _ => Err(Errno(libc::EINVAL)),
    };
    let ready = ready.and_then(|id| {
        if let Some(mut attr) = attr {
            // SAFETY: the objects in the attributes exist while the endpoint exists, by contract
            // with the program.
            unsafe { qp::create_plain(id, listener.public.pd.get(), &raw mut attr) }?;
        }
        Ok(id)
    });
    ready.unwrap_or(listener).public.event.set(event);
    ready.map(|_| new)
}

/// `rdma_create_ep`: 0, or -1 with `errno` set.
pub unsafe extern "C-unwind" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    from: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe {
        non_null(id).and_then(|id| create(from, pd, attr).map(|new| id.write(new)))
    })
}

/// `rdma_destroy_ep`: also destroys the queue pair and the shared receive queue of the id.
pub unsafe extern "C-unwind" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    // SAFETY: the caller's word.
    unsafe {
        let Ok(known) = Id::of(id) else { return };
        if !known.public.qp.get().is_null() {
            qp::rdma_destroy_qp(id);
        }
        if !known.public.srq.get().is_null() {
            srq::rdma_destroy_srq(id);
        }
        event::object::rdma_destroy_id(id);
    }
}

/// `rdma_get_request`: 0, or -1 with `errno` set; EINVAL if the listener is not synchronous.
pub unsafe extern "C-unwind" fn rdma_get_request(
    listener: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe {
        non_null(id).and_then(|id| Id::of(listener).and_then(request).map(|new| id.write(new)))
    })
}
