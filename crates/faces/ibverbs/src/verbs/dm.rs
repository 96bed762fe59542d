//! Device memory.
use super::post::slice;
use super::region::{self, access_of};
use super::{done, end, failed_null, files, only_bits};
use crate::abi::*;
use crate::handles::{Origin, Reserved, live, live_in, reserve};
use crate::objects::MrKind;
use adverb_device::{Dm, Error};
use core::ffi::{c_int, c_uint, c_void};
use libc::size_t;
use std::sync::Arc;

/// The unit in which the CPU reaches device memory.
const UNIT: u64 = 4;

/// Gives device memory to the program.
pub(super) fn give(place: Reserved<Arc<Dm>>, origin: Origin, dm: Arc<Dm>) -> *mut ibv_dm {
    let visible = ibv_dm {
        context: origin.context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: IBV_DM_MASK_HANDLE,
        handle: origin.handle,
    };
    place.fill(visible, dm, origin)
}

/// Slot `alloc_dm`.
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    // SAFETY: the program's attributes.
    alloc(context, unsafe { &*attr }).unwrap_or_else(|e| failed_null("ibv_alloc_dm", &e))
}

fn alloc(context: *mut ibv_context, attr: &ibv_alloc_dm_attr) -> Result<*mut ibv_dm, Error> {
    let obj = live(context)?;
    only_bits("comp_mask is", attr.comp_mask, 0)?;
    let place = reserve()?;
    let dm = Dm::alloc(&obj.context, attr.length as u64, attr.log_align_req)?;
    let file = obj.file;
    let handle = files::enter_dm(file, &dm);
    Ok(give(place, Origin { context, file, handle }, dm))
}

/// Slot `free_dm`.
pub unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    end("ibv_free_dm", dm, |obj| files::end_dm(obj.origin().handle, || obj.free()))
}

/// Slot `reg_dm_mr`.
pub unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: size_t,
    access: c_uint,
) -> *mut ibv_mr {
    let make = || {
        let domain = live(pd)?;
        let memory = live_in(dm, domain.origin().file)?;
        let place = reserve()?;
        let mr = domain.pd.reg_dm_mr(&memory, dm_offset, length as u64, access_of(access)?)?;
        Ok(region::give_other(place, &domain, length, mr, MrKind::Dm))
    };
    make().unwrap_or_else(|e| failed_null("ibv_reg_dm_mr", &e))
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
    let copy = || {
        let obj = live(dm)?;
        check_units(dm_offset, length)?;
        // SAFETY: the program's `length` bytes.
        obj.write(dm_offset, unsafe { slice(host_addr.cast::<u8>(), length) })
    };
    done("ibv_memcpy_to_dm", copy())
}

/// Pointer `memcpy_from_dm` of each device memory.
pub unsafe extern "C" fn memcpy_from_dm(
    host_addr: *mut c_void,
    dm: *mut ibv_dm,
    dm_offset: u64,
    length: size_t,
) -> c_int {
    let copy = || {
        let obj = live(dm)?;
        if length == 0 {
            return Ok(());
        }
        check_units(dm_offset, length)?;
        // SAFETY: the program's `length` bytes.
        let to = unsafe { core::slice::from_raw_parts_mut(host_addr.cast::<u8>(), length) };
        obj.read(dm_offset, to)
    };
    done("ibv_memcpy_from_dm", copy())
}
