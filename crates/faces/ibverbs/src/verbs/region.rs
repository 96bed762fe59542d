//! Memory regions: how they are registered and given to the program.
use super::files;
use super::observers::call::Event;
use super::observers::list::tell;
use crate::abi::*;
use crate::handles::{Live, Origin, Reserved, live, reserve};
use crate::objects::{InUse, MrKind, MrObj, PdObj};
use adverb_check::Kind;
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
    object: MrObj,
) -> *mut ibv_mr {
    let (origin, lkey) = (pd.origin(), object.mr.key());
    let handle = files::enter_mr(origin.file, &object.mr);
    // A null region has only an L_Key.
    let rkey = if object.kind == MrKind::Null { 0 } else { lkey };
    let visible =
        ibv_mr { context: origin.context, pd: pd.visible(), addr, length, handle, lkey, rkey };
    place.fill(visible, object, Origin { handle, ..origin })
}

/// Gives a region without memory of the program to the program, and tells the instruments.
pub(super) fn give_other(
    place: Reserved<MrObj>,
    pd: &Live<PdObj>,
    length: size_t,
    mr: Arc<Mr>,
    kind: MrKind,
) -> *mut ibv_mr {
    tell(Event::Registered { mr: &mr, memory: None, iova: 0, access: Access::empty() });
    let object = MrObj { mr, kind, _dmah: None };
    let region = give(place, pd, core::ptr::null_mut(), length, object);
    tell(Event::Made(Kind::Region, region as usize));
    region
}

/// Registers memory of the program, with a DMA handle if one is given.
///
/// # Safety
/// The program keeps the bytes mapped as `Pd::reg_mr` asks.
pub(super) unsafe fn register(
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
    tell(Event::Registered { mr: &mr, memory: Some((addr as u64, length as u64)), iova, access });
    let object = MrObj { mr, kind: MrKind::Plain, _dmah: dmah };
    let region = give(place, &obj, addr, length, object);
    tell(Event::Made(Kind::Region, region as usize));
    Ok(region)
}
