//! Protection domains, thread domains and parent domains.
use super::import::{self, FileId};
use super::{failed, failed_null};
use crate::abi::*;
use crate::objects::{ContextObj, CustomMemory, Object, ParentDomain, PdObj};
use adverb_device::{Error, Pd};
use adverb_sync::Mutex;
use core::ffi::c_int;
use libc::EINVAL;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A thread domain: the program's promise that objects of it are used by one thread at a time. Nothing depends on it.
#[repr(C)]
pub struct TdObj {
    c: ibv_td,
    /// Parent domains that name it.
    users: AtomicUsize,
}

// SAFETY: repr(C) with the C type as its first field.
unsafe impl Object<ibv_td> for TdObj {}

/// Allocates a protection domain.
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the program's live context.
    let obj = unsafe { ContextObj::behind(context) };
    match Pd::new(&obj.context) {
        Ok(pd) => {
            let handle = import::enter_pd(FileId::of(obj), &pd);
            PdObj { c: ibv_pd { context, handle }, pd, parent: None }.into_handle()
        }
        Err(e) => failed_null("ibv_alloc_pd", &e),
    }
}

/// Frees a protection domain or a parent domain.
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the program's live domain.
    let obj: &PdObj = unsafe { PdObj::behind(pd) };
    let done = match &obj.parent {
        Some(parent) => dealloc_parent(pd, obj, parent),
        None => obj.pd.dealloc().inspect(|()| import::leave_pd(obj.c.handle)),
    };
    if let Err(e) = done {
        return failed("ibv_dealloc_pd", &e);
    }
    // SAFETY: as above; nothing uses it any more.
    unsafe { PdObj::free(pd) };
    0
}

fn dealloc_parent(pd: *mut ibv_pd, obj: &PdObj, parent: &ParentDomain) -> Result<(), Error> {
    let users = CUSTOM_USERS.lock().get(&(pd as usize)).copied().unwrap_or(0);
    if users > 0 {
        return Err(Error::busy("the parent domain", users));
    }
    obj.pd.remove_user();
    if !parent.td.is_null() {
        // SAFETY: a thread domain waits for its parent domains (`dealloc_td`).
        let td: &TdObj = unsafe { TdObj::behind(parent.td) };
        td.users.fetch_sub(1, Ordering::SeqCst);
    }
    Ok(())
}

/// Slot `alloc_td`.
pub unsafe extern "C" fn alloc_td(
    context: *mut ibv_context,
    init_attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    // SAFETY: the program's attributes.
    let mask = unsafe { (*init_attr).comp_mask };
    if mask != 0 {
        let e = Error::invalid(format!("comp_mask is {mask:#x}"), "no bit of it is defined");
        return failed_null("ibv_alloc_td", &e);
    }
    TdObj { c: ibv_td { context }, users: AtomicUsize::new(0) }.into_handle()
}

/// Slot `dealloc_td`.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    // SAFETY: the program's live domain.
    let obj: &TdObj = unsafe { TdObj::behind(td) };
    match obj.users.load(Ordering::SeqCst) {
        0 => {
            // SAFETY: as above; nothing uses it any more.
            unsafe { TdObj::free(td) };
            0
        }
        n => failed("ibv_dealloc_td", &Error::busy("the thread domain", n)),
    }
}

/// Slot `alloc_parent_domain`.
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the program's live context and its attributes.
    unsafe { parent_domain(context, attr) }.unwrap_or_else(|e| failed_null("ibv_alloc_parent_domain", &e))
}

/// # Safety
/// A live context and valid attributes, of the size that their `comp_mask` says.
unsafe fn parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> Result<*mut ibv_pd, Error> {
    const KNOWN: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
        | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
    // SAFETY: the caller's promise; fields of version 17.
    let (pd, td, mask) = unsafe { ((*attr).pd, (*attr).td, (*attr).comp_mask) };
    if pd.is_null() {
        return Err(Error::invalid("pd", "a parent domain stands on a protection domain"));
    }
    if mask & !KNOWN != 0 {
        return Err(Error::invalid(format!("comp_mask is {mask:#x}"), "it has bits that are not known"));
    }
    let mut parent = ParentDomain {
        protection_domain: pd,
        td,
        alloc: None,
        free: None,
        pd_context: core::ptr::null_mut(),
    };
    if mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS != 0 {
        // SAFETY: the mask says that the fields are there.
        (parent.alloc, parent.free) = unsafe { ((*attr).alloc, (*attr).free) };
    }
    if mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT != 0 {
        // SAFETY: as above.
        parent.pd_context = unsafe { (*attr).pd_context };
    }
    // SAFETY: live domains of the program.
    let below = unsafe {
        if !td.is_null() {
            TdObj::behind(td).users.fetch_add(1, Ordering::SeqCst);
        }
        PdObj::behind(pd)
    };
    below.pd.add_user();
    let c = ibv_pd { context, handle: below.c.handle };
    Ok(PdObj { c, pd: below.pd.clone(), parent: Some(parent) }.into_handle())
}

/// How many objects hold memory of a parent domain's allocator, by the domain's address.
static CUSTOM_USERS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// Asks the allocator of a parent domain for an object's memory. `None`: it is no parent domain (or `pd` is null), it
/// has no allocator, or the allocator leaves it to us.
///
/// # Errors
/// ENOMEM if the program's allocator answers null.
///
/// # Safety
/// `pd` is null or a live domain.
pub unsafe fn custom_alloc(
    pd: *mut ibv_pd,
    size: usize,
    align: usize,
    resource_type: u64,
) -> Result<Option<CustomMemory>, Error> {
    if pd.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let obj: &PdObj = unsafe { PdObj::behind(pd) };
    let Some(domain) = obj.parent else { return Ok(None) };
    let Some(alloc) = domain.alloc else { return Ok(None) };
    // SAFETY: the program's own function, called as it was promised.
    let memory = unsafe { alloc(pd, domain.pd_context, size, align, resource_type) };
    if memory == IBV_ALLOCATOR_USE_DEFAULT {
        return Ok(None);
    }
    if memory.is_null() {
        return Err(Error::new(
            Errno::ENOMEM,
            format!("the parent domain's allocator has no {size} bytes for resource type {resource_type:#x}"),
        ));
    }
    *CUSTOM_USERS.lock().entry(pd as usize).or_default() += 1;
    Ok(Some(CustomMemory { pd, domain, memory, resource_type }))
}

/// Gives memory of [`custom_alloc`] back.
///
/// # Safety
/// Nobody uses the memory any more; it is given back once.
pub unsafe fn custom_free(custom: CustomMemory) {
    if let Some(free) = custom.domain.free {
        // SAFETY: the program's own function, called as it was promised.
        unsafe { free(custom.pd, custom.domain.pd_context, custom.memory, custom.resource_type) };
    }
    let mut users = CUSTOM_USERS.lock();
    if let Some(n) = users.get_mut(&(custom.pd as usize)) {
        *n -= 1;
        if *n == 0 {
            users.remove(&(custom.pd as usize));
        }
    }
}

/// EINVAL if a handle that must be there is null.
pub(super) fn need<T>(handle: *mut T, what: &str) -> Result<*mut T, Error> {
    if handle.is_null() {
        Err(Error::new(Errno::from_raw(EINVAL), format!("{what} is null")))
    } else {
        Ok(handle)
    }
}
