//! Memory windows.
use super::{failed, failed_null, import};
use crate::abi::*;
use crate::objects::{MrKind, MrObj, MwObj, Object, PdObj, QpObj};
use adverb_device::Error;
use adverb_device::engine::keys::MwType;
use adverb_device::engine::{Access, Payload, SendFlags, SendOp, SendWr};
use core::ffi::c_int;
use nix::errno::Errno;

/// Slot `alloc_mw`.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the program's live domain.
    let obj: &PdObj = unsafe { PdObj::behind(pd) };
    let made = match mw_type {
        IBV_MW_TYPE_1 => obj.pd.alloc_mw(MwType::Type1),
        IBV_MW_TYPE_2 => obj.pd.alloc_mw(MwType::Type2),
        other => Err(Error::invalid(format!("type is {other}"), "windows are of type 1 or 2")),
    };
    match made {
        Ok(mw) => {
            let c = ibv_mw {
                context: obj.c.context,
                pd,
                rkey: mw.key(),
                handle: import::new_handle(),
                type_: mw_type,
            };
            MwObj { c, mw }.into_handle()
        }
        Err(e) => failed_null("ibv_alloc_mw", &e),
    }
}

/// Slot `bind_mw`: windows of type 1. Posts a bind request whose key is the window's with the next tag.
pub unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int {
    // SAFETY: the program's live handles and its request.
    match unsafe { bind(qp, mw, &*mw_bind) } {
        Ok(()) => 0,
        Err(e) => failed("ibv_bind_mw", &e),
    }
}

/// # Safety
/// Live handles (the region may be null).
unsafe fn bind(qp: *mut ibv_qp, mw: *mut ibv_mw, request: &ibv_mw_bind) -> Result<(), Error> {
    // SAFETY: the caller's promise.
    let (queue, window): (&QpObj, &MwObj) = unsafe { (QpObj::behind(qp), MwObj::behind(mw)) };
    let info = &request.bind_info;
    if window.mw.ty() != MwType::Type1 {
        return Err(Error::invalid(
            "mw",
            "ibv_bind_mw binds windows of type 1; others are bound by a work request",
        ));
    }
    if info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
        return Err(Error::invalid("mw_access_flags", "a window of type 1 cannot be zero-based"));
    }
    let mr = if info.mr.is_null() {
        if info.addr != 0 || info.length != 0 {
            return Err(Error::invalid("mr is null", "only a bind of length 0 goes without a region"));
        }
        0
    } else {
        // SAFETY: the caller's promise.
        let region: &MrObj = unsafe { MrObj::behind(info.mr) };
        if region.kind != MrKind::Plain {
            return Err(Error::new(Errno::ENOTSUP, "windows are bound to regions of ordinary memory"));
        }
        region.mr.key()
    };
    let access = Access::from_bits_truncate(info.mw_access_flags);
    let op = window.mw.bind_request(mr, info.addr, info.length, access);
    let wr = SendWr {
        wr_id: request.wr_id,
        flags: SendFlags::from_bits_truncate(request.send_flags),
        op: SendOp::BindMw(op),
        data: Payload::Sges(&[]),
        ud: None,
        xrc_srqn: 0,
    };
    let _alone = super::wr_api::Alone::on(queue);
    let mut chain = queue.qp.send_chain()?;
    chain.stage(&wr)?;
    // Before the hand-over: whoever polls the completion may read the new key.
    window.mw.set_key(op.new_key);
    // SAFETY: the visible field of a live window.
    unsafe { (*mw).rkey = op.new_key };
    chain.commit();
    Ok(())
}

/// Slot `dealloc_mw`.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the program's live window.
    let obj: &MwObj = unsafe { MwObj::behind(mw) };
    if let Err(e) = obj.mw.dealloc() {
        return failed("ibv_dealloc_mw", &e);
    }
    // SAFETY: as above; nothing uses it any more.
    unsafe { MwObj::free(mw) };
    0
}
