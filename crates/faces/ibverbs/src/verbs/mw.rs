//! Memory windows.
use super::{done, end, failed_null, files};
use crate::abi::*;
use crate::handles::{Live, Origin, hot, live, live_in, maybe_in, reserve};
use crate::objects::MrKind;
use adverb_device::engine::keys::MwType;
use adverb_device::engine::{Access, Payload, SendFlags, SendOp, SendWr};
use adverb_device::{Error, Mw};
use core::ffi::c_int;
use nix::errno::Errno;
use std::sync::Arc;

/// Slot `alloc_mw`.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, mw_type: ibv_mw_type) -> *mut ibv_mw {
    alloc(pd, mw_type).unwrap_or_else(|e| failed_null("ibv_alloc_mw", &e))
}

fn alloc(pd: *mut ibv_pd, mw_type: ibv_mw_type) -> Result<*mut ibv_mw, Error> {
    let obj = live(pd)?;
    let ty = match mw_type {
        IBV_MW_TYPE_1 => MwType::Type1,
        IBV_MW_TYPE_2 => MwType::Type2,
        other => {
            return Err(Error::invalid(format!("type is {other}"), "windows are of type 1 or 2"));
        }
    };
    let place = reserve()?;
    let mw = obj.pd.alloc_mw(ty)?;
    let origin = Origin { handle: files::new_handle(), ..obj.origin() };
    let (context, handle) = (origin.context, origin.handle);
    let visible = ibv_mw { context, pd, rkey: mw.key(), handle, type_: mw_type };
    Ok(place.fill(visible, mw, origin))
}

/// Slot `bind_mw`: windows of type 1. Posts a bind request, whose key is the window's key with the
/// next tag.
pub unsafe extern "C" fn bind_mw(
    qp: *mut ibv_qp,
    mw: *mut ibv_mw,
    mw_bind: *mut ibv_mw_bind,
) -> c_int {
    // SAFETY: the program's request.
    done("ibv_bind_mw", bind(qp, mw, unsafe { &*mw_bind }))
}

fn bind(qp: *mut ibv_qp, mw: *mut ibv_mw, request: &ibv_mw_bind) -> Result<(), Error> {
    let queue = hot(qp)?;
    let file = queue.origin().file;
    let window = live_in(mw, file)?;
    let info = &request.bind_info;
    if window.ty() != MwType::Type1 {
        return Err(Error::invalid(
            "mw",
            "ibv_bind_mw binds windows of type 1; others are bound by a work request",
        ));
    }
    if info.mw_access_flags & IBV_ACCESS_ZERO_BASED != 0 {
        return Err(Error::invalid("mw_access_flags", "a window of type 1 cannot be zero-based"));
    }
    let mr = match maybe_in(info.mr, file)? {
        None if info.addr != 0 || info.length != 0 => {
            return Err(Error::invalid(
                "mr is null",
                "only a bind of length 0 goes without a region",
            ));
        }
        None => 0,
        Some(region) if region.kind != MrKind::Plain => {
            return Err(Error::new(
                Errno::ENOTSUP,
                "windows are bound to regions of ordinary memory",
            ));
        }
        Some(region) => region.mr.key(),
    };
    let access = Access::from_bits_truncate(info.mw_access_flags);
    let op = window.bind_request(mr, info.addr, info.length, access);
    let key = op.bound_key();
    let wr = SendWr {
        wr_id: request.wr_id,
        flags: SendFlags::from_bits_truncate(request.send_flags) - SendFlags::RENDEZVOUS,
        op: SendOp::BindMw(op),
        data: Payload::Sges(&[]),
        ud: None,
        xrc_srqn: 0,
    };
    let _alone = super::alone::Alone::on(&queue);
    let mut chain = queue.qp.send_chain()?;
    chain.stage(&wr)?;
    // Before the commit, because the thread that polls the completion may read the new key.
    show_key(&window, key);
    chain.commit();
    Ok(())
}

/// Writes the key of a posted bind into the window. Windows of type 2 get the key too, as with
/// irdma: some programs read it from `rkey`, and the others know it already.
fn show_key(window: &Live<Arc<Mw>>, key: u32) {
    window.set_key(key);
    // SAFETY: a visible field of the window; the caller keeps the window alive.
    unsafe { (*window.visible()).rkey = key };
}

/// Like [`show_key`], for a window that may have been destroyed meanwhile.
pub(super) fn show_key_of(mw: *mut ibv_mw, key: u32) {
    if let Ok(window) = hot(mw) {
        show_key(&window, key);
    }
}

/// Slot `dealloc_mw`.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    end("ibv_dealloc_mw", mw, |obj| obj.dealloc())
}
