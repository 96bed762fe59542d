//! Protection domains, thread domains and parent domains.
use super::observers::call::Event;
use super::observers::list::tell;
use super::{end, failed_null, files, only_bits};
use crate::abi::*;
use crate::handles::{Live, Origin, hot, live, live_in, maybe_in, reserve};
use crate::objects::{CustomMemory, ParentDomain, PdObj, TdObj};
use adverb_check::Kind;
use adverb_device::{Error, Pd};
use core::ffi::c_int;
use core::sync::atomic::{AtomicUsize, Ordering};
use nix::errno::Errno;

/// Allocates a protection domain.
pub unsafe extern "C" fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    alloc_pd(context).unwrap_or_else(|e| failed_null("ibv_alloc_pd", &e))
}

fn alloc_pd(context: *mut ibv_context) -> Result<*mut ibv_pd, Error> {
    let owner = live(context)?;
    let place = reserve::<PdObj>()?;
    let pd = Pd::new(&owner.context)?;
    let file = owner.file;
    let handle = files::enter_pd(file, &pd);
    let inner = PdObj { pd, parent: None, custom_users: AtomicUsize::new(0) };
    let pd = place.fill(ibv_pd { context, handle }, inner, Origin { context, file, handle });
    tell(Event::Made(Kind::Domain, pd as usize));
    Ok(pd)
}

/// Frees a protection domain or a parent domain.
pub unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
    end("ibv_dealloc_pd", pd, |obj| {
        match &obj.parent {
            Some(parent) => dealloc_parent(obj, parent)?,
            None => files::end_pd(obj.origin().handle, || obj.pd.dealloc())?,
        }
        tell(Event::Ended(Kind::Domain, pd as usize));
        Ok(())
    })
}

fn dealloc_parent(obj: &Live<PdObj>, parent: &ParentDomain) -> Result<(), Error> {
    match obj.custom_users.load(Ordering::SeqCst) {
        0 => {}
        users => return Err(Error::busy("the parent domain", users)),
    }
    obj.pd.remove_user();
    // A thread domain stays until its parent domains have ended (`dealloc_td`), so the thread
    // domain is alive.
    if let Ok(td) = hot(parent.td) {
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
    make_td(context, mask).unwrap_or_else(|e| failed_null("ibv_alloc_td", &e))
}

fn make_td(context: *mut ibv_context, mask: u32) -> Result<*mut ibv_td, Error> {
    let file = live(context)?.file;
    only_bits("comp_mask is", mask, 0)?;
    let inner = TdObj { users: AtomicUsize::new(0) };
    Ok(reserve::<TdObj>()?.fill(ibv_td { context }, inner, Origin { context, file, handle: 0 }))
}

/// Slot `dealloc_td`.
pub unsafe extern "C" fn dealloc_td(td: *mut ibv_td) -> c_int {
    end("ibv_dealloc_td", td, |obj| match obj.users.load(Ordering::SeqCst) {
        0 => Ok(()),
        n => Err(Error::busy("the thread domain", n)),
    })
}

/// Slot `alloc_parent_domain`.
pub unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    // SAFETY: the program's attributes.
    unsafe { parent_domain(context, attr) }
        .unwrap_or_else(|e| failed_null("ibv_alloc_parent_domain", &e))
}

/// # Safety
/// Valid attributes, of the size that `comp_mask` states.
unsafe fn parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> Result<*mut ibv_pd, Error> {
    const KNOWN: u32 = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
        | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
        | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
    // SAFETY: the caller's promise; fields of version 17.
    let (pd, td, mask) = unsafe { ((*attr).pd, (*attr).td, (*attr).comp_mask) };
    let file = live(context)?.file;
    let below = live_in(pd, file)?;
    let thread = maybe_in(td, file)?;
    only_bits("comp_mask is", mask, KNOWN)?;
    let mut parent =
        ParentDomain { td, alloc: None, free: None, pd_context: core::ptr::null_mut() };
    if mask & IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS != 0 {
        // SAFETY: the mask says that the fields are there.
        (parent.alloc, parent.free) = unsafe { ((*attr).alloc, (*attr).free) };
    }
    if mask & IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT != 0 {
        // SAFETY: as above.
        parent.pd_context = unsafe { (*attr).pd_context };
    }
    let place = reserve::<PdObj>()?;
    if let Some(td) = thread {
        td.users.fetch_add(1, Ordering::SeqCst);
    }
    below.pd.add_user();
    let handle = below.origin().handle;
    let inner =
        PdObj { pd: below.pd.clone(), parent: Some(parent), custom_users: AtomicUsize::new(0) };
    Ok(place.fill(ibv_pd { context, handle }, inner, Origin { context, file, handle }))
}

/// Asks the allocator of a parent domain for an object's memory. `None`: the domain is no parent
/// domain, it has no allocator, or the allocator leaves the memory to the library.
///
/// # Errors
/// ENOMEM if the program's allocator returns null.
pub fn custom_alloc(
    obj: &Live<PdObj>,
    size: usize,
    align: usize,
    resource_type: u64,
) -> Result<Option<CustomMemory>, Error> {
    let pd = obj.visible();
    let Some(domain) = obj.parent else { return Ok(None) };
    let Some(alloc) = domain.alloc else { return Ok(None) };
    // SAFETY: the program's own function, called as the interface defines it.
    let memory = unsafe { alloc(pd, domain.pd_context, size, align, resource_type) };
    if memory == IBV_ALLOCATOR_USE_DEFAULT {
        return Ok(None);
    }
    if memory.is_null() {
        return Err(Error::new(
            Errno::ENOMEM,
            format!(
                "the parent domain's allocator has no {size} bytes for resource type {resource_type:#x}"
            ),
        ));
    }
    obj.custom_users.fetch_add(1, Ordering::SeqCst);
    Ok(Some(CustomMemory { pd, domain, memory, resource_type }))
}

/// Frees memory of [`custom_alloc`], if there is any.
///
/// # Safety
/// No code uses the memory any more, and the memory is freed once.
pub unsafe fn custom_free(custom: Option<CustomMemory>) {
    let Some(custom) = custom else { return };
    if let Some(free) = custom.domain.free {
        // SAFETY: the program's own function, called as the interface defines it.
        unsafe { free(custom.pd, custom.domain.pd_context, custom.memory, custom.resource_type) };
    }
    // The domain stays until its users have ended (`dealloc_parent`), so the domain is alive.
    if let Ok(pd) = hot(custom.pd) {
        pd.custom_users.fetch_sub(1, Ordering::SeqCst);
    }
}
