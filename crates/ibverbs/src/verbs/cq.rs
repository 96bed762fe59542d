//! Completion queues: creation, size, moderation, end. Polling and arming are in [`super::poll`].
use super::{failed, failed_null, poll};
use crate::abi::*;
use crate::objects::{ChannelObj, ContextObj, CqObj, CustomMemory, Object};
use crate::verbs::pd::{custom_alloc, custom_free};
use adverb_device::{Cq, Error};
use adverb_sync::RawMutex;
use adverb_sync::lock_api::RawMutex as _;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Fields of a completion that the device fills: all but those of raw packets and tag matching.
const WC_FLAGS: u64 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP
    | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Completions with these carry the time of their coming.
const TIMESTAMPS: u64 = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Resource type a parent domain's allocator is asked with: ours, outside the ranges of vendors' drivers.
pub const RESOURCE_CQ: u64 = 0xadb0_0001;

/// What a CQ is made of beyond what every CQ has.
struct Extras {
    single_threaded: bool,
    timestamps: bool,
    custom: Option<CustomMemory>,
}

/// # Safety
/// The handles are live (`channel` may be null).
unsafe fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
    extras: Extras,
) -> Result<*mut ibv_cq, Error> {
    // SAFETY: the caller's promise.
    let owner = unsafe { ContextObj::behind(context) };
    let ours: Option<&ChannelObj> = if channel.is_null() {
        None
    } else {
        // SAFETY: the caller's promise.
        Some(unsafe { ChannelObj::behind(channel) })
    };
    let cq = Cq::new(&owner.context, cqe, ours.map(|c| &c.channel), comp_vector)?;
    if !extras.timestamps {
        cq.without_timestamps();
    }
    let mut c = ibv_cq_ex::zeroed();
    c.context = context;
    c.channel = channel;
    c.cq_context = cq_context;
    c.handle = cq.number();
    c.cqe = c_int::try_from(cq.capacity()).unwrap_or(c_int::MAX);
    c.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    c.cond = libc::PTHREAD_COND_INITIALIZER;
    poll::extend(&mut c);
    let handle = CqObj {
        c,
        alive: AtomicUsize::new(0),
        cq: ManuallyDrop::new(cq.clone()),
        poll_lock: (!extras.single_threaded).then_some(RawMutex::INIT),
        current: UnsafeCell::new(None),
        said_empty: UnsafeCell::new(false),
        wallclock_offset: wallclock_offset(&owner.context),
        custom: extras.custom,
    }
    .enter();
    cq.set_cookie(handle as usize);
    Ok(handle)
}

/// Wallclock minus the node's time.
fn wallclock_offset(context: &Arc<adverb_device::Context>) -> i64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as i64);
    wall - context.node().now().0 as i64
}

/// Creates a CQ of at least `cqe` entries.
pub unsafe extern "C" fn ibv_create_cq(
    context: *mut ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: c_int,
) -> *mut ibv_cq {
    let (Ok(cqe), Ok(vector)) = (u32::try_from(cqe), u32::try_from(comp_vector)) else {
        return failed_null("ibv_create_cq", &Error::invalid("cqe or comp_vector", "it cannot be negative"));
    };
    let extras = Extras { single_threaded: false, timestamps: false, custom: None };
    // SAFETY: the program's live handles.
    unsafe { create(context, cqe, cq_context, channel, vector, extras) }
        .unwrap_or_else(|e| failed_null("ibv_create_cq", &e))
}

/// Slot `create_cq_ex`.
pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    init_attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the program's attributes; fields beyond those of version 17 are looked at as `comp_mask` says.
    match unsafe { create_ex(context, init_attr) } {
        Ok(cq) => cq.cast(),
        Err(e) => failed_null("ibv_create_cq_ex", &e),
    }
}

/// # Safety
/// Live handles and valid attributes.
unsafe fn create_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> Result<*mut ibv_cq, Error> {
    // SAFETY: the caller's promise. No reference to the whole: an old program's struct is shorter than ours.
    let (cqe, vector, wc_flags, mask) =
        unsafe { ((*attr).cqe, (*attr).comp_vector, (*attr).wc_flags, (*attr).comp_mask) };
    if mask & !(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD) != 0 {
        return Err(Error::invalid(format!("comp_mask is {mask:#x}"), "it has bits that are not known"));
    }
    if wc_flags & !WC_FLAGS != 0 {
        return Err(Error::unsupported(format!(
            "wc_flags {:#x} ask for fields a RoCE completion does not have",
            wc_flags & !WC_FLAGS
        )));
    }
    // SAFETY: the mask says that the field is there.
    let flags = if mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { unsafe { (*attr).flags } } else { 0 };
    if flags & !IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0 {
        return Err(Error::unsupported(format!(
            "CQ flags {flags:#x}: only IBV_CREATE_CQ_ATTR_SINGLE_THREADED is offered"
        )));
    }
    let custom = if mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
        // SAFETY: the mask says that the field is there; a live handle.
        unsafe { custom_alloc((*attr).parent_domain, size_of::<CqObj>(), 64, RESOURCE_CQ) }?
    } else {
        None
    };
    let extras = Extras {
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
        timestamps: wc_flags & TIMESTAMPS != 0,
        custom,
    };
    // SAFETY: the caller's promise.
    let made = unsafe { create(context, cqe, (*attr).cq_context, (*attr).channel, vector, extras) };
    if made.is_err()
        && let Some(custom) = custom
    {
        // SAFETY: allocated above, used by nobody.
        unsafe { custom_free(custom) };
    }
    made
}

/// Changes the length of a CQ.
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the program's handle, checked.
    let Some(obj) = (unsafe { CqObj::living(cq) }) else { return libc::EINVAL };
    let Ok(wanted) = u32::try_from(cqe) else { return libc::EINVAL };
    match obj.cq.resize(wanted) {
        Ok(now) => {
            // SAFETY: the visible field of a live handle.
            unsafe { (*cq).cqe = c_int::try_from(now).unwrap_or(c_int::MAX) };
            0
        }
        Err(e) => failed("ibv_resize_cq", &e),
    }
}

/// Destroys a CQ, after its events have been acknowledged (CHN-4).
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: the program's handle, checked.
    let Some(obj) = (unsafe { CqObj::living(cq) }) else { return libc::EINVAL };
    if let Err(e) = obj.cq.destroy() {
        return failed("ibv_destroy_cq", &e);
    }
    let custom = obj.custom;
    // SAFETY: destroyed: no event names it any more and the program gave up the handle.
    unsafe {
        CqObj::bury(cq);
        if let Some(custom) = custom {
            custom_free(custom);
        }
    }
    0
}

/// Slot `modify_cq`: moderation (EXT-2): an event after `cq_count` completions or `cq_period` microseconds.
pub unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    // SAFETY: the program's handle, checked, and its attributes.
    let (Some(obj), attr) = (unsafe { (CqObj::living(cq), &*attr) }) else { return libc::EINVAL };
    if attr.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
        return libc::EINVAL;
    }
    if attr.attr_mask & IBV_CQ_ATTR_MODERATE != 0 {
        let period = Duration::from_micros(attr.moderate.cq_period.into());
        if let Err(e) = obj.cq.moderate(attr.moderate.cq_count.into(), period) {
            return failed("ibv_modify_cq", &e);
        }
    }
    0
}
