//! Shared receive queues. Posting to them is in [`super::post`], tag matching in [`super::tags`].
use super::observers::call::Event;
use super::observers::list::tell;
use super::pd::{custom_alloc, custom_free};
use super::tags::MAX_TAG_OPS;
use super::{done, failed_null, files, only_bits};
use crate::abi::*;
use crate::handles::{Origin, live, live_in, reserve};
use crate::objects::SrqObj;
use adverb_check::{Kind, Source};
use adverb_device::nic::room;
use adverb_device::{Error, Srq};
use core::ffi::c_int;

/// Resource type in the request to a parent domain's allocator. The number is this library's own,
/// outside the ranges of vendors' drivers.
pub const RESOURCE_SRQ: u64 = 0xadb0_0003;

/// What an SRQ of another type than the basic one needs.
enum Special {
    Xrc { xrcd: *mut ibv_xrcd, cq: *mut ibv_cq },
    Tags { cq: *mut ibv_cq, max_tags: u32 },
}

fn create(
    pd: *mut ibv_pd,
    srq_context: *mut core::ffi::c_void,
    attr: &mut ibv_srq_attr,
    special: Option<Special>,
) -> Result<*mut ibv_srq, Error> {
    let domain = live(pd)?;
    let from = domain.origin();
    let place = reserve::<SrqObj>()?;
    let (pd_of, max_wr) = (&domain.pd, attr.max_wr);
    let context = pd_of.context();
    let max_sge = room::grant_srq(context.nic(), context.limits(), attr.max_sge);
    // `srq_limit` is ignored at creation: a new SRQ has no limit.
    let srq = match special {
        None => Srq::new(pd_of, max_wr, max_sge, 0, None)?,
        Some(Special::Xrc { xrcd, cq }) => {
            let (xrcd, cq) = (live_in(xrcd, from.file)?, live_in(cq, from.file)?);
            Srq::new(pd_of, max_wr, max_sge, 0, Some((&xrcd.xrcd, &cq.cq)))?
        }
        Some(Special::Tags { cq, max_tags }) => {
            Srq::with_tags(pd_of, max_wr, max_sge, &live_in(cq, from.file)?.cq, max_tags)?
        }
    };
    let custom =
        custom_alloc(&domain, size_of::<SrqObj>(), 64, RESOURCE_SRQ).inspect_err(|_| {
            // No other code knows the SRQ yet.
            let _ = srq.destroy();
        })?;
    (attr.max_wr, attr.max_sge, _) = srq.attributes();
    let mut c = ibv_srq::zeroed();
    c.context = from.context;
    c.srq_context = srq_context;
    c.pd = pd;
    c.handle = files::new_handle();
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.cond = libc::PTHREAD_COND_INITIALIZER;
    let origin = Origin { handle: c.handle, ..from };
    // Events may name the SRQ as soon as a thread can use it.
    srq.set_cookie(place.handle() as usize);
    let handle = place.fill(c, SrqObj { srq, custom }, origin);
    tell(Event::Made(Kind::Srq, handle as usize));
    Ok(handle)
}

/// Creates an SRQ. The actual sizes are written back.
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    srq_init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: the program's attributes.
    unsafe {
        let attr = &mut *srq_init_attr;
        create(pd, attr.srq_context, &mut attr.attr, None)
    }
    .unwrap_or_else(|e| failed_null("ibv_create_srq", &e))
}

/// Slot `create_srq_ex`.
pub unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    // SAFETY: the program's attributes.
    unsafe { create_ex(context, attr) }.unwrap_or_else(|e| failed_null("ibv_create_srq_ex", &e))
}

/// # Safety
/// Valid attributes, of the size that `comp_mask` states.
unsafe fn create_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> Result<*mut ibv_srq, Error> {
    let file = live(context)?.file;
    // SAFETY: the caller's promise.
    let mask = unsafe { (*attr).comp_mask };
    if mask >= IBV_SRQ_INIT_ATTR_RESERVED {
        return Err(Error::unsupported(format!("comp_mask is {mask:#x}: unknown bits are set")));
    }
    let has = |bit| mask & bit != 0;
    // SAFETY: the mask says which fields are there.
    unsafe {
        let kind = if has(IBV_SRQ_INIT_ATTR_TYPE) { (*attr).srq_type } else { IBV_SRQT_BASIC };
        if !has(IBV_SRQ_INIT_ATTR_PD) {
            return Err(Error::invalid("comp_mask", "IBV_SRQ_INIT_ATTR_PD is needed"));
        }
        let pd = (*attr).pd;
        live_in(pd, file)?;
        let special = match kind {
            IBV_SRQT_BASIC => None,
            IBV_SRQT_XRC => {
                if !has(IBV_SRQ_INIT_ATTR_XRCD) || !has(IBV_SRQ_INIT_ATTR_CQ) {
                    return Err(Error::invalid(
                        "comp_mask",
                        "an XRC SRQ needs an XRC domain and a CQ",
                    ));
                }
                Some(Special::Xrc { xrcd: (*attr).xrcd, cq: (*attr).cq })
            }
            IBV_SRQT_TM => {
                if !has(IBV_SRQ_INIT_ATTR_CQ) || !has(IBV_SRQ_INIT_ATTR_TM) {
                    return Err(Error::invalid(
                        "comp_mask",
                        "a tag matching SRQ needs a CQ and tm_cap",
                    ));
                }
                let cap = (*attr).tm_cap;
                if cap.max_ops > MAX_TAG_OPS {
                    return Err(Error::invalid(
                        format!("max_ops is {}", cap.max_ops),
                        format!("at most {MAX_TAG_OPS} are possible"),
                    ));
                }
                Some(Special::Tags { cq: (*attr).cq, max_tags: cap.max_num_tags })
            }
            other => return Err(Error::invalid(format!("srq_type is {other}"), "unknown value")),
        };
        create(pd, (*attr).srq_context, &mut (*attr).attr, special)
    }
}

/// Changes the length or the limit of an SRQ.
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    srq_attr: *mut ibv_srq_attr,
    srq_attr_mask: c_int,
) -> c_int {
    let modify = || {
        let obj = live(srq)?;
        // SAFETY: the program's attributes.
        let attr = unsafe { &*srq_attr };
        let mask = srq_attr_mask as u32;
        only_bits("srq_attr_mask is", mask, IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)?;
        let given = |bit, value| (mask & bit != 0).then_some(value);
        obj.srq.modify(given(IBV_SRQ_MAX_WR, attr.max_wr), given(IBV_SRQ_LIMIT, attr.srq_limit))
    };
    done("ibv_modify_srq", modify())
}

/// The attributes of an SRQ.
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, srq_attr: *mut ibv_srq_attr) -> c_int {
    let query = live(srq).and_then(|obj| {
        obj.srq.context().check_device()?;
        let (max_wr, max_sge, srq_limit) = obj.srq.attributes();
        // SAFETY: the program passes a place for the attributes.
        unsafe { srq_attr.write(ibv_srq_attr { max_wr, max_sge, srq_limit }) };
        Ok(())
    });
    done("ibv_query_srq", query)
}

/// Destroys an SRQ: EBUSY while queue pairs use it. Waits until its events are acknowledged.
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    done("ibv_destroy_srq", destroy(srq))
}

fn destroy(srq: *mut ibv_srq) -> Result<(), Error> {
    let obj = live(srq)?.end()?;
    tell(Event::Destroying(&[Source::Srq(obj.srq.number())]));
    obj.srq.destroy()?;
    tell(Event::SrqDestroyed(&obj.srq));
    tell(Event::Ended(Kind::Srq, srq as usize));
    let custom = obj.custom;
    obj.finish();
    // SAFETY: the program's memory for the queue. No object lies in it, and it is freed once, by
    // the thread that ended the queue.
    unsafe { custom_free(custom) };
    Ok(())
}

/// Slot `get_srq_num`.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, srq_num: *mut u32) -> c_int {
    // SAFETY: the program passes a place for the number.
    done("ibv_get_srq_num", live(srq).map(|obj| unsafe { srq_num.write(obj.srq.number()) }))
}
