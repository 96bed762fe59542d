//! Device memory.
use super::import::{self, FileId};
use super::mr::{self, access_of};
use super::{failed, failed_minus_one, failed_null};
use crate::abi::*;
use crate::objects::{ContextObj, DmObj, MrKind, Object, PdObj};
use adverb_device::{Dm, Error};
use core::ffi::{c_int, c_uint, c_void};
use libc::size_t;
use std::sync::Arc;

/// The unit in which the CPU reaches device memory.
const UNIT: u64 = 4;

/// Gives device memory to the program.
pub(super) fn give(context: *mut ibv_context, handle: u32, dm: Arc<Dm>) -> *mut ibv_dm {
    let c = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: IBV_DM_MASK_HANDLE,
        handle,
    };
    DmObj { c, dm }.into_handle()
}

/// Slot `alloc_dm`.
pub unsafe extern "C" fn alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
    // SAFETY: the program's live context and its attributes.
    let (obj, attr) = unsafe { (ContextObj::behind(context), &*attr) };
    let made = if attr.comp_mask == 0 {
        Dm::alloc(&obj.context, attr.length as u64, attr.log_align_req)
    } else {
        Err(Error::invalid(format!("comp_mask is {:#x}", attr.comp_mask), "no bit of it is defined"))
    };
    match made {
        Ok(dm) => give(context, import::enter_dm(FileId::of(obj), &dm), dm),
        Err(e) => failed_null("ibv_alloc_dm", &e),
    }
}

/// Slot `free_dm`.
pub unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    // SAFETY: the program's live memory.
    let obj: &DmObj = unsafe { DmObj::behind(dm) };
    if let Err(e) = obj.dm.free() {
        return failed("ibv_free_dm", &e);
    }
    import::leave_dm(obj.c.handle);
    // SAFETY: as above; nothing uses it any more.
    unsafe { DmObj::free(dm) };
    0
}

/// Slot `reg_dm_mr`.
pub unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: size_t,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the program's live domain and memory.
    let (domain, memory): (&PdObj, &DmObj) = unsafe { (PdObj::behind(pd), DmObj::behind(dm)) };
    let made = access_of(access)
        .and_then(|access| domain.pd.reg_dm_mr(&memory.dm, dm_offset, length as u64, access));
    match made {
        // SAFETY: a live domain.
        Ok(mr) => unsafe { mr::give(pd, core::ptr::null_mut(), length, mr, MrKind::Dm) },
        Err(e) => failed_null("ibv_reg_dm_mr", &e),
    }
}

/// A descriptor of device memory: not offered. Also slot `dm_export_dmabuf_fd`.
pub unsafe extern "C" fn ibv_dm_export_dmabuf_fd(_dm: *mut ibv_dm) -> c_int {
    let e = Error::unsupported("device memory is memory of this process and has no DMA-BUF");
    failed_minus_one("ibv_dm_export_dmabuf_fd", &e)
}

fn check_units(offset: u64, length: size_t) -> Result<(), Error> {
    if offset.is_multiple_of(UNIT) && (length as u64).is_multiple_of(UNIT) {
        return Ok(());
    }
    Err(Error::invalid(
        format!("{length} bytes at offset {offset}"),
        format!("device memory is read and written in units of {UNIT} bytes"),
    ))
}

/// Pointer `memcpy_to_dm` of each device memory.
pub unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    dm_offset: u64,
    host_addr: *const c_void,
    length: size_t,
) -> c_int {
    // SAFETY: the program's live memory and its `length` bytes.
    let (obj, from): (&DmObj, _) =
        unsafe { (DmObj::behind(dm), core::slice::from_raw_parts(host_addr.cast::<u8>(), length)) };
    match check_units(dm_offset, length).and_then(|()| obj.dm.write(dm_offset, from)) {
        Ok(()) => 0,
        Err(e) => failed("ibv_memcpy_to_dm", &e),
    }
}

/// Pointer `memcpy_from_dm` of each device memory.
pub unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: size_t,
) -> c_int {
    // SAFETY: the program's live memory and its `length` bytes.
    let (obj, to): (&DmObj, _) =
        unsafe { (DmObj::behind(dm), core::slice::from_raw_parts_mut(host_addr.cast::<u8>(), length)) };
    match check_units(dm_offset, length).and_then(|()| obj.dm.read(dm_offset, to)) {
        Ok(()) => 0,
        Err(e) => failed("ibv_memcpy_from_dm", &e),
    }
}
