//! Shared receive queues. Posting to them is in [`super::post`].
use super::pd::{custom_alloc, custom_free, need};
use super::{failed, failed_null, import};
use crate::abi::*;
use crate::objects::{CqObj, Object, PdObj, SrqObj, XrcdObj};
use adverb_device::{Error, Srq};
use core::ffi::c_int;

/// Resource type a parent domain's allocator is asked with: ours, outside the ranges of vendors' drivers.
pub const RESOURCE_SRQ: u64 = 0xadb0_0003;

/// What makes an SRQ an XRC one.
struct Xrc {
    xrcd: *mut ibv_xrcd,
    cq: *mut ibv_cq,
}

/// # Safety
/// Live handles.
unsafe fn create(
    pd: *mut ibv_pd,
    srq_context: *mut core::ffi::c_void,
    attr: &mut ibv_srq_attr,
    xrc: Option<Xrc>,
) -> Result<*mut ibv_srq, Error> {
    // SAFETY: the caller's promise.
    let domain: &PdObj = unsafe { PdObj::behind(pd) };
    let new = |xrc: Option<(&_, &_)>| {
        // `srq_limit` says nothing at creation: an SRQ begins without a limit.
        Srq::new(&domain.pd, attr.max_wr, attr.max_sge, 0, xrc)
    };
    let srq = match xrc {
        None => new(None)?,
        Some(Xrc { xrcd, cq }) => {
            // SAFETY: the caller's promise; a destroyed CQ is found out.
            let (xrcd, cq): (&XrcdObj, _) = unsafe { (XrcdObj::behind(xrcd), CqObj::living(cq)) };
            let cq = cq.ok_or_else(|| Error::invalid("cq", "it is not a completion queue"))?;
            new(Some((&xrcd.xrcd, &*cq.cq)))?
        }
    };
    // SAFETY: a live domain.
    let custom = unsafe { custom_alloc(pd, size_of::<SrqObj>(), 64, RESOURCE_SRQ) };
    let custom = custom.inspect_err(|_| {
        // Nobody knows it yet.
        let _ = srq.destroy();
    })?;
    (attr.max_wr, attr.max_sge, _) = srq.attributes();
    let mut c = ibv_srq::zeroed();
    c.context = domain.c.context;
    c.srq_context = srq_context;
    c.pd = pd;
    c.handle = import::new_handle();
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.cond = libc::PTHREAD_COND_INITIALIZER;
    let handle = SrqObj { c, srq: srq.clone(), custom }.into_handle();
    srq.set_cookie(handle as usize);
    Ok(handle)
}

/// Creates an SRQ; the sizes it got are written back.
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    srq_init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the program's live domain and its attributes.
    unsafe {
        let attr = &mut *srq_init_attr;
        create(pd, attr.srq_context, &mut attr.attr, None)
    }
    .unwrap_or_else(|e| failed_null("ibv_create_srq", &e))
}

/// Slot `create_srq_ex`.
pub unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the program's attributes and handles.
    unsafe { create_ex(attr) }.unwrap_or_else(|e| failed_null("ibv_create_srq_ex", &e))
}

/// # Safety
/// Valid attributes, of the size that their `comp_mask` says, with live handles.
unsafe fn create_ex(attr: *mut ibv_srq_init_attr_ex) -> Result<*mut ibv_srq, Error> {
    // SAFETY: the caller's promise.
    let mask = unsafe { (*attr).comp_mask };
    if mask >= IBV_SRQ_INIT_ATTR_RESERVED {
        return Err(Error::unsupported(format!("comp_mask is {mask:#x}: it has bits that are not known")));
    }
    let has = |bit| mask & bit != 0;
    // SAFETY: the mask says which fields are there.
    unsafe {
        let kind = if has(IBV_SRQ_INIT_ATTR_TYPE) { (*attr).srq_type } else { IBV_SRQT_BASIC };
        let pd = if has(IBV_SRQ_INIT_ATTR_PD) { need((*attr).pd, "pd")? } else { core::ptr::null_mut() };
        if pd.is_null() {
            return Err(Error::invalid("comp_mask", "IBV_SRQ_INIT_ATTR_PD is needed"));
        }
        let xrc = match kind {
            IBV_SRQT_BASIC => None,
            IBV_SRQT_XRC => {
                if !has(IBV_SRQ_INIT_ATTR_XRCD) || !has(IBV_SRQ_INIT_ATTR_CQ) {
                    return Err(Error::invalid("comp_mask", "an XRC SRQ needs an XRC domain and a CQ"));
                }
                Some(Xrc { xrcd: need((*attr).xrcd, "xrcd")?, cq: (*attr).cq })
            }
            IBV_SRQT_TM => return Err(Error::unsupported("tag matching is not offered")),
            other => return Err(Error::invalid(format!("srq_type is {other}"), "it is not known")),
        };
        create(pd, (*attr).srq_context, &mut (*attr).attr, xrc)
    }
}

/// Changes the length or the limit of an SRQ.
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    srq_attr: *mut ibv_srq_attr,
    srq_attr_mask: c_int,
) -> c_int {
    // SAFETY: the program's live queue and its attributes.
    let (obj, attr): (&SrqObj, _) = unsafe { (SrqObj::behind(srq), &*srq_attr) };
    let mask = srq_attr_mask as u32;
    let done = if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) == 0 {
        let given = |bit, value| (mask & bit != 0).then_some(value);
        obj.srq.modify(given(IBV_SRQ_MAX_WR, attr.max_wr), given(IBV_SRQ_LIMIT, attr.srq_limit))
    } else {
        Err(Error::invalid(format!("srq_attr_mask is {mask:#x}"), "it has bits that are not known"))
    };
    match done {
        Ok(()) => 0,
        Err(e) => failed("ibv_modify_srq", &e),
    }
}

/// The attributes of an SRQ.
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int {
    // SAFETY: the program's live queue and its place for the attributes.
    unsafe {
        let obj: &SrqObj = SrqObj::behind(srq);
        let (max_wr, max_sge, srq_limit) = obj.srq.attributes();
        srq_attr.write(ibv_srq_attr { max_wr, max_sge, srq_limit });
    }
    0
}

/// Destroys an SRQ; EBUSY while queue pairs use it. Waits until its events were acknowledged.
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the program's live queue.
    let obj: &SrqObj = unsafe { SrqObj::behind(srq) };
    if let Err(e) = obj.srq.destroy() {
        return failed("ibv_destroy_srq", &e);
    }
    let custom = obj.custom;
    // SAFETY: destroyed: no event names it any more and the program gave up the handle.
    unsafe {
        SrqObj::free(srq);
        if let Some(custom) = custom {
            custom_free(custom);
        }
    }
    0
}

/// Slot `get_srq_num`.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    // SAFETY: the program's live queue and its place for the number.
    unsafe {
        let obj: &SrqObj = SrqObj::behind(srq);
        srq_num.write(obj.srq.number());
    }
    0
}

/// Slot `post_srq_ops`: tag matching, which is not offered.
pub unsafe extern "C" fn post_srq_ops(
    _srq: *mut ibv_srq,
    wr: *mut ibv_ops_wr,
    bad_wr: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: the program passes a place for the request that failed.
    unsafe { bad_wr.write(wr) };
    failed("ibv_post_srq_ops", &Error::unsupported("tag matching is not offered"))
}
