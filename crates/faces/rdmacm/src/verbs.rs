//! Calls of `libibverbs.so.1`, and the header's inline functions, which use a context's tables.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use crate::error::{Errno, ErrnoResult, checked};
use adverb_abi::*;

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
    fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int;
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int;
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        vector: c_int,
    ) -> *mut ibv_cq;
    fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    fn ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int;
    fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    fn ibv_copy_qp_attr_from_kern(to: *mut ibv_qp_attr, from: *mut ib_uverbs_qp_attr);
    fn ibv_copy_ah_attr_from_kern(to: *mut ibv_ah_attr, from: *mut ib_uverbs_ah_attr);
}

type Context = *mut ibv_context;

/// Distance in bytes from a context down to a slot of its extended table. The table grows at its
/// front, so the distances have not changed since rdma-core 17.
macro_rules! slot {
    ($name:ident) => {
        offset_of!(verbs_context, context) - offset_of!(verbs_context, $name)
    };
}

/// A function of the table below a context. Fails if the pointer is null.
///
/// # Safety
/// The context is open.
unsafe fn table(context: Context, slot: usize) -> ErrnoResult<*const c_void> {
    let at = context.cast::<u8>();
    // SAFETY: an open context of libibverbs has this field. If the field holds this mark, the words
    // below the context are valid.
    let (size, function) = unsafe {
        if (*context).abi_compat != ABI_IS_EXTENDED {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        (at.sub(slot!(sz)).cast::<usize>().read(), at.sub(slot).cast::<*const c_void>().read())
    };
    if size < slot + size_of::<ibv_context>() || function.is_null() {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    Ok(function)
}

fn made<T>(pointer: *mut T) -> ErrnoResult<*mut T> {
    if pointer.is_null() { Err(Errno::last()) } else { Ok(pointer) }
}

/// A device of a list.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    device: *mut ibv_device,
    /// As from `ibv_get_device_guid`.
    pub guid: u64,
    /// As from `ibv_get_device_index`.
    pub index: u32,
}

/// Calls `look` with the current devices. An open device stays valid without the list.
pub fn with_devices<T>(look: impl FnOnce(&[Listed]) -> ErrnoResult<T>) -> ErrnoResult<T> {
    let mut count = 0;
    // SAFETY: `count` has room for the number.
    let list = unsafe { ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return Err(Errno(libc::ENODEV));
    }
    let listed = (0..usize::try_from(count).unwrap_or(0)).map(|i| {
        // SAFETY: the list has `count` devices.
        unsafe {
            let device = *list.add(i);
            Listed {
                device,
                guid: ibv_get_device_guid(device),
                index: ibv_get_device_index(device) as u32,
            }
        }
    });
    let listed: Vec<_> = listed.collect();
    let outcome = if listed.is_empty() { Err(Errno(libc::ENODEV)) } else { look(&listed) };
    // SAFETY: the list is from `ibv_get_device_list`, and none of its devices is used after this.
    unsafe { ibv_free_device_list(list) };
    outcome
}

/// Opens a device while its list exists.
///
/// # Safety
/// The device list with this device has not been freed.
pub unsafe fn open(listed: Listed) -> ErrnoResult<Context> {
    // SAFETY: the caller's word.
    made(unsafe { ibv_open_device(listed.device) })
}

/// The limits of an open device.
///
/// # Safety
/// The context is open.
pub unsafe fn limits(context: Context) -> ErrnoResult<ibv_device_attr> {
    // SAFETY: all fields are integers, for which zeros are valid.
    let mut attr: ibv_device_attr = unsafe { core::mem::zeroed() };
    // SAFETY: an open context and room of the right type.
    checked(unsafe { ibv_query_device(context, &raw mut attr) })?;
    Ok(attr)
}

/// # Safety
/// The context is open.
pub unsafe fn alloc_pd(context: Context) -> ErrnoResult<*mut ibv_pd> {
    // SAFETY: the caller's word.
    made(unsafe { ibv_alloc_pd(context) })
}

/// # Safety
/// The domain is not used any more.
pub unsafe fn dealloc_pd(pd: *mut ibv_pd) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { ibv_dealloc_pd(pd) })
}

/// Opens an XRC domain for this process only.
///
/// # Safety
/// The context is open.
pub unsafe fn open_xrcd(context: Context) -> ErrnoResult<*mut ibv_xrcd> {
    type Open = unsafe extern "C" fn(Context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd;
    let mut attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT,
    };
    // SAFETY: the slot holds a function of this type, and the context is open.
    made(unsafe {
        let open: Open =
            core::mem::transmute::<*const c_void, Open>(table(context, slot!(open_xrcd))?);
        open(context, &raw mut attr)
    })
}

/// # Safety
/// The context is open. The domain belongs to the context and is not used any more.
pub unsafe fn close_xrcd(context: Context, xrcd: *mut ibv_xrcd) -> ErrnoResult {
    type Close = unsafe extern "C" fn(*mut ibv_xrcd) -> c_int;
    // SAFETY: the slot holds a function of this type; the caller guarantees the domain.
    checked(unsafe {
        let close: Close =
            core::mem::transmute::<*const c_void, Close>(table(context, slot!(close_xrcd))?);
        close(xrcd)
    })
}

/// # Safety
/// The context is open.
pub unsafe fn create_comp_channel(context: Context) -> ErrnoResult<*mut ibv_comp_channel> {
    // SAFETY: the caller's word.
    made(unsafe { ibv_create_comp_channel(context) })
}

/// # Safety
/// The channel is not used any more.
pub unsafe fn destroy_comp_channel(channel: *mut ibv_comp_channel) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { ibv_destroy_comp_channel(channel) })
}

/// # Safety
/// Context and channel are open.
pub unsafe fn create_cq(
    context: Context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
) -> ErrnoResult<*mut ibv_cq> {
    let cqe = c_int::try_from(cqe).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: the caller's word.
    made(unsafe { ibv_create_cq(context, cqe, cq_context, channel, 0) })
}

/// # Safety
/// The queue is not used any more.
pub unsafe fn destroy_cq(cq: *mut ibv_cq) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { ibv_destroy_cq(cq) })
}

/// The header's `ibv_create_srq_ex`.
///
/// # Safety
/// The context is open, and the objects in the attributes belong to it.
pub unsafe fn create_srq(
    context: Context,
    attr: &mut ibv_srq_init_attr_ex,
) -> ErrnoResult<*mut ibv_srq> {
    type Create = unsafe extern "C" fn(Context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
    let plain = attr.comp_mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) == 0
        && attr.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0
        && (attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || attr.srq_type == IBV_SRQT_BASIC);
    // SAFETY: the long attributes begin with the short attributes; the slot holds a function of
    // this type.
    made(unsafe {
        if plain {
            ibv_create_srq(attr.pd, (attr as *mut ibv_srq_init_attr_ex).cast())
        } else {
            let create = table(context, slot!(create_srq_ex))?;
            let create: Create = core::mem::transmute::<*const c_void, Create>(create);
            create(context, attr)
        }
    })
}

/// # Safety
/// The queue is not used any more.
pub unsafe fn destroy_srq(srq: *mut ibv_srq) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { ibv_destroy_srq(srq) })
}

/// The header's `ibv_create_qp_ex`.
///
/// # Safety
/// The context is open, and the objects in the attributes belong to it. The structure may be
/// shorter than its type, as given by `comp_mask`.
pub unsafe fn create_qp(
    context: Context,
    attr: *mut ibv_qp_init_attr_ex,
) -> ErrnoResult<*mut ibv_qp> {
    type Create = unsafe extern "C" fn(Context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
    // SAFETY: the long attributes begin with the short attributes; the slot holds a function of
    // this type.
    made(unsafe {
        if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
            ibv_create_qp((*attr).pd, attr.cast())
        } else {
            let create = table(context, slot!(create_qp_ex))?;
            let create: Create = core::mem::transmute::<*const c_void, Create>(create);
            create(context, attr)
        }
    })
}

/// # Safety
/// The queue pair exists.
pub unsafe fn modify_qp(qp: *mut ibv_qp, attr: &mut ibv_qp_attr, mask: c_int) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { ibv_modify_qp(qp, attr, mask) })
}

/// # Safety
/// The queue pair is not used any more.
pub unsafe fn destroy_qp(qp: *mut ibv_qp) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { ibv_destroy_qp(qp) })
}

/// # Safety
/// The queue pair exists.
pub unsafe fn attach(qp: *mut ibv_qp, gid: &ibv_gid, lid: u16) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { ibv_attach_mcast(qp, gid, lid) })
}

/// # Safety
/// The queue pair exists.
pub unsafe fn detach(qp: *mut ibv_qp, gid: &ibv_gid, lid: u16) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { ibv_detach_mcast(qp, gid, lid) })
}

/// Converts the attributes to the header's type, for the change to `state`.
pub fn qp_attr_from(attr: &mut ib_uverbs_qp_attr, state: u32) -> ibv_qp_attr {
    // SAFETY: the function takes these two types, and zeros are valid for both.
    unsafe {
        let mut to: ibv_qp_attr = core::mem::zeroed();
        ibv_copy_qp_attr_from_kern(&raw mut to, attr);
        // The function does not set this field.
        to.qp_state = state;
        to
    }
}

/// Converts the address to the header's type.
pub fn ah_attr_from(attr: &mut ib_uverbs_ah_attr) -> ibv_ah_attr {
    // SAFETY: the function takes these two types, and zeros are valid for both.
    unsafe {
        let mut to: ibv_ah_attr = core::mem::zeroed();
        ibv_copy_ah_attr_from_kern(&raw mut to, attr);
        to
    }
}
