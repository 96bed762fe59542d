//! Shared receive queues of ids.

use core::ffi::c_int;
use core::ptr::null_mut;

use crate::abi::cma::rdma_cm_id;
use crate::error::{Errno, ErrnoResult, non_null, zero_or_minus_one};
use crate::id::Id;
use crate::query::set_bound_device;
use crate::{qp, verbs};
use adverb_abi::*;

/// # Safety
/// The objects in the attributes exist.
unsafe fn create(id: &Id, attr: &mut ibv_srq_init_attr_ex) -> ErrnoResult {
    set_bound_device(id)?;
    let public = &id.public;
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0
        || public.verbs.get().is_null()
        || !public.srq.get().is_null()
    {
        return Err(Errno(libc::EINVAL));
    }
    if attr.comp_mask & IBV_SRQ_INIT_ATTR_PD == 0 || attr.pd.is_null() {
        attr.pd = public.pd.get();
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_PD;
    }
    if attr.srq_type == IBV_SRQT_XRC {
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_XRCD == 0 || attr.xrcd.is_null() {
            attr.xrcd = id.device(|device| device.xrcd())?;
        }
        if attr.comp_mask & IBV_SRQ_INIT_ATTR_CQ == 0 || attr.cq.is_null() {
            qp::create_cqs(id, 0, attr.attr.max_wr)?;
            attr.cq = public.recv_cq.get();
        }
        attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    }
    // SAFETY: the id's context is never closed; the rest is the caller's word.
    let made = unsafe { verbs::create_srq(public.verbs.get(), attr) };
    let srq = made.inspect_err(|_| qp::destroy_cqs(id))?;
    if public.pd.get().is_null() {
        public.pd.set(attr.pd);
    }
    public.srq.set(srq);
    Ok(())
}

/// `rdma_create_srq_ex`: 0, or -1 with `errno` set.
pub unsafe extern "C-unwind" fn rdma_create_srq_ex(
    id: *mut rdma_cm_id,
    attr: *mut ibv_srq_init_attr_ex,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe {
        Id::of(id).and_then(|id| create(id, attr.as_mut().ok_or(Errno(libc::EINVAL))?))
    })
}

/// `rdma_create_srq`: 0, or -1 with `errno` set. For an XRC receiver the queue is an XRC SRQ.
pub unsafe extern "C-unwind" fn rdma_create_srq(
    id: *mut rdma_cm_id,
    pd: *mut ibv_pd,
    attr: *mut ibv_srq_init_attr,
) -> c_int {
    // SAFETY: the caller's word; the long attributes begin with the short attributes, and zeros are
    // valid for the rest.
    zero_or_minus_one(unsafe {
        Id::of(id).and_then(|id| {
            let attr = non_null(attr)?;
            let mut long: ibv_srq_init_attr_ex = core::mem::zeroed();
            (&raw mut long).cast::<ibv_srq_init_attr>().write(*attr);
            long.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
            let xrc = id.public.qp_type.get() == IBV_QPT_XRC_RECV;
            long.srq_type = if xrc { IBV_SRQT_XRC } else { IBV_SRQT_BASIC };
            long.pd = pd;
            let outcome = create(id, &mut long);
            attr.write((&raw const long).cast::<ibv_srq_init_attr>().read());
            outcome
        })
    })
}

/// `rdma_destroy_srq`: also destroys the completion queue that was created for the SRQ.
pub unsafe extern "C-unwind" fn rdma_destroy_srq(id: *mut rdma_cm_id) {
    // SAFETY: the caller's word; the queue belongs to the id.
    unsafe {
        let Ok(id) = Id::of(id) else { return };
        let srq = id.public.srq.replace(null_mut());
        if !srq.is_null() {
            let _ = verbs::destroy_srq(srq);
        }
        qp::destroy_cqs(id);
    }
}
