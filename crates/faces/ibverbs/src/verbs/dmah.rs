//! DMA handles: hints about the processor cache into which a device's transfers are to go. In this
//! library the processor itself copies, so a hint has no effect. A hint is checked as a device
//! checks it, and regions store it.
use super::{end, failed_null, files, only_bits};
use crate::abi::*;
use crate::handles::{Origin, live, reserve};
use crate::objects::DmahObj;
use adverb_device::{Errno, Error};
use core::ffi::c_int;
use core::sync::atomic::Ordering;
use std::sync::Arc;

/// Processing hints have two bits (PCI Express 6.2).
const MAX_PH: u8 = 3;

/// Allocates a DMA handle. Also slot `alloc_dmah`.
pub unsafe extern "C" fn ibv_alloc_dmah(
    context: *mut ibv_context,
    attr: *mut ibv_dmah_init_attr,
) -> *mut ibv_dmah {
    // SAFETY: the program's attributes.
    unsafe { alloc(context, attr) }.unwrap_or_else(|e| failed_null("ibv_alloc_dmah", &e))
}

/// # Safety
/// Valid attributes, if the context is alive.
unsafe fn alloc(
    context: *mut ibv_context,
    attr: *const ibv_dmah_init_attr,
) -> Result<*mut ibv_dmah, Error> {
    let obj = live(context)?;
    // SAFETY: the caller's promise.
    let attr = unsafe { &*attr };
    let has = |bit| attr.comp_mask & bit != 0;
    let known = IBV_DMAH_INIT_ATTR_MASK_CPU_ID
        | IBV_DMAH_INIT_ATTR_MASK_PH
        | IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE;
    only_bits("comp_mask is", attr.comp_mask, known)?;
    if has(IBV_DMAH_INIT_ATTR_MASK_CPU_ID) && !may_run_on(attr.cpu_id as usize) {
        let text = format!("cpu_id is {}: this thread does not run there", attr.cpu_id);
        return Err(Error::new(Errno::EPERM, text));
    }
    let mem_type = u32::from(attr.tph_mem_type);
    if has(IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE) && mem_type > IBV_TPH_MEM_TYPE_PM {
        return Err(Error::invalid(format!("tph_mem_type is {mem_type}"), "unknown value"));
    }
    // A handle needs a processing hint (PCI Express 6.2). The processor and the type of memory are
    // optional.
    if !has(IBV_DMAH_INIT_ATTR_MASK_PH) || attr.ph > MAX_PH {
        return Err(Error::invalid("ph", "a processing hint of 0 to 3 is needed"));
    }
    let place = reserve()?;
    let handle = files::new_handle();
    let origin = Origin { context, file: obj.file, handle };
    Ok(place.fill(ibv_dmah { context }, DmahObj { users: Arc::default() }, origin))
}

/// Tells whether the calling thread may run on the processor.
fn may_run_on(cpu: usize) -> bool {
    // SAFETY: all zero bytes are a valid set, which the call fills.
    let (set, done) = unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        let done = libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        (set, done)
    };
    // SAFETY: the set has CPU_SETSIZE bits.
    done == 0 && cpu < libc::CPU_SETSIZE as usize && unsafe { libc::CPU_ISSET(cpu, &set) }
}

/// Frees a DMA handle: EBUSY while regions use it. Also slot `dealloc_dmah`.
pub unsafe extern "C" fn ibv_dealloc_dmah(dmah: *mut ibv_dmah) -> c_int {
    end("ibv_dealloc_dmah", dmah, |obj| match obj.users.load(Ordering::SeqCst) {
        0 => Ok(()),
        n => Err(Error::new(Errno::EBUSY, format!("{n} memory regions have the DMA handle"))),
    })
}
