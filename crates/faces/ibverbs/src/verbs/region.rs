//! Memory regions: how they are registered and given to the program.
use super::files;
use super::observers::call::{Event, Kind};
use super::observers::list::tell;
use crate::abi::*;
use crate::handles::{Live, Origin, Reserved, live, reserve};
use crate::objects::{InUse, MrKind, MrObj, PdObj};
use adverb_device::engine::Access;
use adverb_device::{Error, Mr};
use core::ffi::c_void;
use libc::size_t;
use std::sync::Arc;

/// The rights in an access word. Unknown optional bits are dropped, and other unknown bits are
/// refused.
pub(super) fn access_of(bits: u32) -> Result<Access, Error> {
    let access = Access::from_bits_truncate(bits);
    let unknown = bits & !access.bits() & !IBV_ACCESS_OPTIONAL_RANGE;
    if unknown != 0 {
        return Err(Error::invalid(
            format!("access is {bits:#x}"),
            format!("bits {unknown:#x} are not known"),
        ));
    }
    Ok(access)
}

/// Gives a region to the program.
pub(super) fn give(
    place: Reserved<MrObj>,
    pd: &Live<PdObj>,
    addr: *mut c_void,
    length: size_t,
    mr: Arc<Mr>,
    kind: MrKind,
) -> *mut ibv_mr {
    let (origin, lkey) = (pd.origin(), mr.key());
    let handle = files::enter_mr(origin.file, &mr);
    // A null region has only an L_Key.
    let rkey = if kind == MrKind::Null { 0 } else { lkey };
    let visible =
        ibv_mr { context: origin.context, pd: pd.visible(), addr, length, handle, lkey, rkey };
    tell(Event::Registered { mr: &mr, memory: None, iova: 0, access: Access::empty() });
    let region = place.fill(visible, MrObj { mr, kind, _dmah: None }, Origin { handle, ..origin });
    tell(Event::Made(Kind::Region, region as usize));
    region
}

/// # Safety
/// The program keeps the bytes mapped as `Pd::reg_mr` asks.
pub(super) unsafe fn register(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: u32,
) -> Result<*mut ibv_mr, Error> {
    // SAFETY: the caller's promise.
    unsafe { register_with(pd, addr, length, iova, access, None) }
}

/// Like [`register`], with a DMA handle if one is given.
///
/// # Safety
/// The same as for [`register`].
pub(super) unsafe fn register_with(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: u32,
    dmah: Option<InUse>,
) -> Result<*mut ibv_mr, Error> {
    let obj = live(pd)?;
    let access = access_of(access)?;
    let place = reserve()?;
    // SAFETY: the caller's promise.
    let mr = unsafe { obj.pd.reg_mr(addr as u64, length as u64, iova, access) }?;
    let (origin, lkey) = (obj.origin(), mr.key());
    let handle = files::enter_mr(origin.file, &mr);
    let visible = ibv_mr {
        context: origin.context,
        pd: obj.visible(),
        addr,
        length,
        handle,
        lkey,
        rkey: lkey,
    };
    tell(Event::Registered { mr: &mr, memory: Some((addr as u64, length as u64)), iova, access });
    let object = MrObj { mr, kind: MrKind::Plain, _dmah: dmah };
    let region = place.fill(visible, object, Origin { handle, ..origin });
    tell(Event::Made(Kind::Region, region as usize));
    Ok(region)
}
