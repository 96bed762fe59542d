//! Calls of `libibverbs.so.1`, and the header's inline functions, which use a context's tables.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;

use crate::error::{Errno, ErrnoResult, checked};
use adverb_abi::*;

type Context = *mut ibv_context;

/// Defines a function for each call that fails with null (`made`) or with an error number
/// (`checked`).
macro_rules! calls {
    ($($name:ident = $check:ident $call:ident($($arg:ident: $ty:ty),*) -> $answer:ty, $done:ty;)*) => {
        unsafe extern "C" {
            $(fn $call($($arg: $ty),*) -> $answer;)*
        }
        $(
            #[doc = concat!("`", stringify!($call), "`.")]
            ///
            /// # Safety
            /// The objects exist, and the attributes are valid. After its end an object is not used
            /// any more.
            pub unsafe fn $name($($arg: $ty),*) -> ErrnoResult<$done> {
                // SAFETY: the caller's word.
                $check(unsafe { $call($($arg),*) })
            }
        )*
    };
}

calls! {
    open_device = made ibv_open_device(device: *mut ibv_device) -> Context, Context;
    query_device = checked ibv_query_device(context: Context, attr: *mut ibv_device_attr) -> c_int, ();
    alloc_pd = made ibv_alloc_pd(context: Context) -> *mut ibv_pd, *mut ibv_pd;
    dealloc_pd = checked ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int, ();
    create_comp_channel = made ibv_create_comp_channel(context: Context)
        -> *mut ibv_comp_channel, *mut ibv_comp_channel;
    destroy_comp_channel = checked ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int, ();
    create_plain_cq = made ibv_create_cq(
        context: Context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, vector: c_int
    ) -> *mut ibv_cq, *mut ibv_cq;
    destroy_cq = checked ibv_destroy_cq(cq: *mut ibv_cq) -> c_int, ();
    create_plain_srq = made ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr)
        -> *mut ibv_srq, *mut ibv_srq;
    destroy_srq = checked ibv_destroy_srq(srq: *mut ibv_srq) -> c_int, ();
    create_plain_qp = made ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr)
        -> *mut ibv_qp, *mut ibv_qp;
    modify_qp = checked ibv_modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, mask: c_int) -> c_int, ();
    destroy_qp = checked ibv_destroy_qp(qp: *mut ibv_qp) -> c_int, ();
    attach = checked ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int, ();
    detach = checked ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int, ();
}

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    fn ibv_free_device_list(list: *mut *mut ibv_device);
    fn ibv_get_device_guid(device: *mut ibv_device) -> u64;
    fn ibv_get_device_index(device: *mut ibv_device) -> c_int;
}

fn made<T>(pointer: *mut T) -> ErrnoResult<*mut T> {
    if pointer.is_null() { Err(Errno::last()) } else { Ok(pointer) }
}

/// Calls a function of the extended table below a context: `extended!(context, slot(arguments))`.
/// The table is complete, because both libraries are of the same build.
macro_rules! extended {
    ($context:expr, $slot:ident($($arg:expr),*)) => {{
        let context: Context = $context;
        let table = context.byte_sub(offset_of!(verbs_context, context)).cast::<verbs_context>();
        ((*table).$slot.ok_or(Errno(libc::EOPNOTSUPP))?)($($arg),*)
    }};
}

/// A device of a list.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    pub device: *mut ibv_device,
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

/// Opens an XRC domain for this process only.
///
/// # Safety
/// The context is open.
pub unsafe fn open_xrcd(context: Context) -> ErrnoResult<*mut ibv_xrcd> {
    let mut attr = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT,
    };
    // SAFETY: the context is open.
    made(unsafe { extended!(context, open_xrcd(context, &raw mut attr)) })
}

/// # Safety
/// The context is open. The domain belongs to the context and is not used any more.
pub unsafe fn close_xrcd(context: Context, xrcd: *mut ibv_xrcd) -> ErrnoResult {
    // SAFETY: the caller's word.
    checked(unsafe { extended!(context, close_xrcd(xrcd)) })
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
    unsafe { create_plain_cq(context, cqe, cq_context, channel, 0) }
}

/// The header's `ibv_create_srq_ex`.
///
/// # Safety
/// The context is open, and the objects in the attributes belong to it.
pub unsafe fn create_srq(
    context: Context,
    attr: &mut ibv_srq_init_attr_ex,
) -> ErrnoResult<*mut ibv_srq> {
    let plain = attr.comp_mask & !(IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_TYPE) == 0
        && attr.comp_mask & IBV_SRQ_INIT_ATTR_PD != 0
        && (attr.comp_mask & IBV_SRQ_INIT_ATTR_TYPE == 0 || attr.srq_type == IBV_SRQT_BASIC);
    // SAFETY: the caller's word. The long attributes begin with the short attributes.
    unsafe {
        if plain {
            create_plain_srq(attr.pd, (&raw mut *attr).cast())
        } else {
            made(extended!(context, create_srq_ex(context, attr)))
        }
    }
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
    // SAFETY: the caller's word. The long attributes begin with the short attributes.
    unsafe {
        if (*attr).comp_mask == IBV_QP_INIT_ATTR_PD {
            create_plain_qp((*attr).pd, attr.cast())
        } else {
            made(extended!(context, create_qp_ex(context, attr)))
        }
    }
}
