//! Completion queues: creation, size, moderation, end. Polling and arming are in [`super::poll`].
use super::observers::call::Event;
use super::observers::list::tell;
use super::observers::table;
use super::{done, failed_null, only_bits, poll};
use crate::abi::*;
use crate::handles::{Origin, live, live_in, maybe_in, reserve};
use crate::objects::{CqObj, CustomMemory};
use crate::verbs::pd::{custom_alloc, custom_free};
use adverb_check::{Kind, Source};
use adverb_device::{Cq, Error};
use adverb_sync::RawMutex;
use adverb_sync::lock_api::RawMutex as _;
use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Fields of a completion that a program may ask for: all. The VLAN and the flow tag read 0,
/// because the device strips no VLANs and no flow of it sets a tag.
const WC_FLAGS: u64 = IBV_CREATE_CQ_SUP_WC_FLAGS;

/// Flags of a queue.
const FLAGS: u32 = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;

/// With these flags, completions carry the time at which they arrived.
const TIMESTAMPS: u64 =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

/// Resource type in the request to a parent domain's allocator. The number is this library's own,
/// outside the ranges of vendors' drivers.
pub const RESOURCE_CQ: u64 = 0xadb0_0001;

/// The parts of a CQ that not every CQ has.
struct Extras {
    single_threaded: bool,
    ignores_overrun: bool,
    timestamps: bool,
    custom: Option<CustomMemory>,
}

fn create(
    context: *mut ibv_context,
    cqe: u32,
    cq_context: *mut c_void,
    channel: *mut ibv_comp_channel,
    comp_vector: u32,
    extras: Extras,
) -> Result<*mut ibv_cq, Error> {
    let owner = live(context)?;
    let file = owner.file;
    let ours = maybe_in(channel, file)?;
    let place = reserve::<CqObj>()?;
    let cq = Cq::new(&owner.context, cqe, ours.as_deref(), comp_vector)?;
    if !extras.timestamps {
        cq.without_timestamps();
    }
    if extras.ignores_overrun {
        cq.ignore_overrun();
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
    table::replace_cq(&mut c);
    let origin = Origin { context, file, handle: c.handle };
    let inner = CqObj {
        cq: cq.clone(),
        poll_lock: (!extras.single_threaded).then_some(RawMutex::INIT),
        current: UnsafeCell::new(None),
        said_empty: UnsafeCell::new(false),
        wallclock_offset: wallclock_offset(&owner.context),
        custom: extras.custom,
    };
    // Events may name the CQ as soon as a thread can use it.
    cq.set_cookie(place.handle() as usize);
    tell(Event::Cq { cq: &cq, ignores_overrun: extras.ignores_overrun });
    let handle = place.fill(c, inner, origin).cast();
    tell(Event::Made(Kind::Cq, handle as usize));
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
        return failed_null(
            "ibv_create_cq",
            &Error::invalid("cqe or comp_vector", "must not be negative"),
        );
    };
    let extras =
        Extras { single_threaded: false, ignores_overrun: false, timestamps: false, custom: None };
    create(context, cqe, cq_context, channel, vector, extras)
        .unwrap_or_else(|e| failed_null("ibv_create_cq", &e))
}

/// Slot `create_cq_ex`.
pub unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    init_attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: the program's attributes; fields after those of version 17 are read only if
    // `comp_mask` names them.
    match unsafe { create_ex(context, init_attr) } {
        Ok(cq) => cq.cast(),
        Err(e) => failed_null("ibv_create_cq_ex", &e),
    }
}

/// # Safety
/// Valid attributes.
unsafe fn create_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> Result<*mut ibv_cq, Error> {
    // SAFETY: the caller's promise. The code makes no reference to the whole struct: in an old
    // program the struct is shorter than the library's.
    let (cqe, vector, wc_flags, mask) =
        unsafe { ((*attr).cqe, (*attr).comp_vector, (*attr).wc_flags, (*attr).comp_mask) };
    only_bits("comp_mask is", mask, IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)?;
    if wc_flags & !WC_FLAGS != 0 {
        return Err(Error::unsupported(format!(
            "wc_flags {:#x} ask for fields a RoCE completion does not have",
            wc_flags & !WC_FLAGS
        )));
    }
    // SAFETY: the mask says that the field is there.
    let flags = if mask & IBV_CQ_INIT_ATTR_MASK_FLAGS != 0 { unsafe { (*attr).flags } } else { 0 };
    only_bits("flags are", flags, FLAGS)?;
    let file = live(context)?.file;
    let parent = if mask & IBV_CQ_INIT_ATTR_MASK_PD != 0 {
        // SAFETY: the mask says that the field is there.
        Some(live_in(unsafe { (*attr).parent_domain }, file)?)
    } else {
        None
    };
    let custom = match &parent {
        Some(plain) if plain.parent.is_none() => {
            return Err(Error::invalid(
                "parent_domain",
                "a protection domain, but no parent domain",
            ));
        }
        Some(parent) => custom_alloc(parent, size_of::<CqObj>(), 64, RESOURCE_CQ)?,
        None => None,
    };
    let extras = Extras {
        single_threaded: flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED != 0,
        ignores_overrun: flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN != 0,
        timestamps: wc_flags & TIMESTAMPS != 0,
        custom,
    };
    // SAFETY: the caller's promise.
    let (cq_context, channel) = unsafe { ((*attr).cq_context, (*attr).channel) };
    // SAFETY: allocated above; no other code uses the memory.
    create(context, cqe, cq_context, channel, vector, extras)
        .inspect_err(|_| unsafe { custom_free(custom) })
}

/// Changes the length of a CQ.
pub unsafe extern "C" fn ibv_resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    let resize = || {
        let obj = live(cq)?;
        let wanted = u32::try_from(cqe)
            .map_err(|_| Error::invalid(format!("cqe is {cqe}"), "must not be negative"))?;
        let now = obj.cq.resize(wanted)?;
        tell(Event::Cq { cq: &obj.cq, ignores_overrun: false });
        // SAFETY: a visible field.
        unsafe { (*obj.visible()).cqe = c_int::try_from(now).unwrap_or(c_int::MAX) };
        Ok(())
    };
    done("ibv_resize_cq", resize())
}

/// Destroys a CQ, after its events were acknowledged (CHN-4).
pub unsafe extern "C" fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int {
    done("ibv_destroy_cq", destroy(cq))
}

fn destroy(cq: *mut ibv_cq) -> Result<(), Error> {
    let obj = live(cq)?.end()?;
    let number = obj.cq.number();
    tell(Event::Destroying(&[Source::Completion(number), Source::Cq(number)]));
    obj.cq.destroy()?;
    tell(Event::CqDestroyed(number));
    tell(Event::Ended(Kind::Cq, cq as usize));
    let custom = obj.custom;
    poll::leave_own(&obj);
    obj.finish();
    // SAFETY: the program's memory for the queue. No object lies in it, and it is freed once, by
    // the thread that ended the queue.
    unsafe { custom_free(custom) };
    Ok(())
}

/// Slot `modify_cq`: moderation (EXT-2): an event after `cq_count` completions or `cq_period`
/// microseconds.
pub unsafe extern "C" fn modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int {
    let modify = || {
        let obj = live(cq)?;
        // SAFETY: the program's attributes.
        let attr = unsafe { &*attr };
        if attr.attr_mask & !IBV_CQ_ATTR_MODERATE != 0 {
            return Err(Error::unsupported(format!(
                "attr_mask is {:#x}: only IBV_CQ_ATTR_MODERATE is known",
                attr.attr_mask
            )));
        }
        if attr.attr_mask & IBV_CQ_ATTR_MODERATE != 0 {
            let period = Duration::from_micros(attr.moderate.cq_period.into());
            obj.cq.moderate(attr.moderate.cq_count.into(), period)?;
        }
        Ok(())
    };
    done("ibv_modify_cq", modify())
}
