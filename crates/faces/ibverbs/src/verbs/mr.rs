//! Memory regions. Buffers of `ibv_alloc_buf` are in [`super::buf`], descriptors in
//! [`super::dmabuf`].
use super::observers::call::Event;
use super::observers::list::tell;
use super::region::{access_of, give_other, register};
use super::{buf, dmabuf, done, end, failed, failed_null, files, only_bits};
use crate::abi::*;
use crate::errno;
use crate::handles::{live, live_in, reserve};
use crate::objects::{InUse, MrKind};
use adverb_check::Kind;
use adverb_device::Error;
use adverb_device::engine::{Access, Sge};
use core::ffi::{c_int, c_uint, c_void};
use libc::{EINVAL, size_t};
use nix::errno::Errno;

/// Registers memory.
pub unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's domain and memory.
    unsafe { register(pd, addr, length, addr as u64, access as u32, None) }
        .unwrap_or_else(|e| failed_null("ibv_reg_mr", &e))
}

/// Registers memory under another address.
pub unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: the program's domain and memory.
    unsafe { register(pd, addr, length, iova, access as u32, None) }
        .unwrap_or_else(|e| failed_null("ibv_reg_mr_iova", &e))
}

/// Registers memory under another address, with optional access bits.
pub unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: the program's domain and memory.
    unsafe { register(pd, addr, length, iova, access, None) }
        .unwrap_or_else(|e| failed_null("ibv_reg_mr_iova2", &e))
}

/// Registers what the attributes say. Also slot `reg_mr_ex`.
pub unsafe extern "C" fn ibv_reg_mr_ex(
    pd: *mut ibv_pd,
    mr_init_attr: *mut ibv_mr_init_attr,
) -> *mut ibv_mr {
    // SAFETY: the program's domain, attributes and memory.
    unsafe { register_ex(pd, &*mr_init_attr) }.unwrap_or_else(|e| failed_null("ibv_reg_mr_ex", &e))
}

/// # Safety
/// The same as for [`register`].
unsafe fn register_ex(pd: *mut ibv_pd, attr: &ibv_mr_init_attr) -> Result<*mut ibv_mr, Error> {
    let has = |bit| attr.comp_mask & bit != 0;
    const KNOWN: u64 = IBV_REG_MR_MASK_IOVA
        | IBV_REG_MR_MASK_ADDR
        | IBV_REG_MR_MASK_FD
        | IBV_REG_MR_MASK_FD_OFFSET
        | IBV_REG_MR_MASK_DMAH
        | IBV_REG_MR_MASK_BUF;
    only_bits("comp_mask is", attr.comp_mask, KNOWN)?;
    let dmah = if has(IBV_REG_MR_MASK_DMAH) {
        if attr.access as u32 & IBV_ACCESS_ON_DEMAND != 0 {
            return Err(Error::invalid("access", "memory on demand takes no DMA handle"));
        }
        let file = live(pd)?.origin().file;
        Some(InUse::new(&live_in(attr.dmah, file)?.users))
    } else {
        None
    };
    if has(IBV_REG_MR_MASK_BUF) {
        if has(IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET) || !has(IBV_REG_MR_MASK_ADDR) {
            return Err(Error::invalid(
                "comp_mask",
                "a buffer is registered by address, not by descriptor",
            ));
        }
        buf::check_inside(pd, attr.buf, attr.addr, attr.length)?;
    }
    if has(IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET) {
        return dmabuf::register(pd, &dmabuf::part_of(attr)?, dmah);
    }
    if !has(IBV_REG_MR_MASK_ADDR) {
        return Err(Error::invalid(
            "comp_mask",
            "IBV_REG_MR_MASK_ADDR or IBV_REG_MR_MASK_FD is needed",
        ));
    }
    let iova = if has(IBV_REG_MR_MASK_IOVA) { attr.iova } else { attr.addr as u64 };
    // SAFETY: the caller's promise.
    unsafe { register(pd, attr.addr, attr.length, iova, attr.access as u32, dmah) }
}

/// Changes a registration. Returns 0 or a value of `ibv_rereg_mr_err_code`.
pub unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: size_t,
    access: c_int,
) -> c_int {
    let flags = flags as u32;
    let has = |bit| flags & bit != 0;
    let found = live(mr).and_then(|obj| {
        let new = if has(IBV_REREG_MR_CHANGE_PD) && !pd.is_null() {
            Some(live_in(pd, obj.origin().file)?)
        } else {
            None
        };
        Ok((obj, new))
    });
    let (obj, new_pd) = match found {
        Ok(found) => found,
        Err(e) => {
            failed("ibv_rereg_mr", &e);
            return IBV_REREG_MR_ERR_INPUT;
        }
    };
    let range = has(IBV_REREG_MR_CHANGE_TRANSLATION);
    if obj.kind != MrKind::Plain
        || flags & !IBV_REREG_MR_FLAGS_SUPPORTED != 0
        || (range && (length == 0 || addr.is_null()))
        || (access != 0 && !has(IBV_REREG_MR_CHANGE_ACCESS))
        || (has(IBV_REREG_MR_CHANGE_PD) && pd.is_null())
    {
        log::info!(
            "ibv_rereg_mr fails: flags {flags:#x}, address, length, domain and access do not fit together"
        );
        errno::set(EINVAL);
        return IBV_REREG_MR_ERR_INPUT;
    }
    let change = || {
        if flags == 0 {
            return Err(Error::invalid("flags are 0", "nothing to change"));
        }
        let access =
            if has(IBV_REREG_MR_CHANGE_ACCESS) { Some(access_of(access as u32)?) } else { None };
        let to = range.then_some((addr as u64, length as u64));
        // SAFETY: the program keeps the new range mapped.
        unsafe { obj.mr.rereg(to, new_pd.as_ref().map(|p| &p.pd), access) }
    };
    if let Err(e) = change() {
        failed("ibv_rereg_mr", &e);
        return IBV_REREG_MR_ERR_CMD;
    }
    // SAFETY: the visible fields of a live region, which the program may read.
    unsafe {
        if has(IBV_REREG_MR_CHANGE_PD) {
            (*mr).pd = pd;
        }
        if range {
            let access = if has(IBV_REREG_MR_CHANGE_ACCESS) { access as u32 } else { 0 };
            let access = Access::from_bits_truncate(access);
            let memory = Some((addr as u64, length as u64));
            tell(Event::Registered { mr: &obj.mr, memory, iova: addr as u64, access });
            (*mr).addr = addr;
            (*mr).length = length;
        }
    }
    0
}

/// Ends a registration.
pub unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    end("ibv_dereg_mr", mr, |obj| {
        tell(Event::Deregistering(&obj.mr));
        files::end_mr(obj.origin().handle, || obj.mr.dereg())?;
        tell(Event::Deregistered(&obj.mr));
        tell(Event::Ended(Kind::Region, mr as usize));
        Ok(())
    })
}

/// Slot `alloc_null_mr`.
pub unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    let make = || {
        let obj = live(pd)?;
        let place = reserve()?;
        let mr = obj.pd.alloc_null_mr()?;
        Ok(give_other(place, &obj, usize::MAX, mr, MrKind::Null))
    };
    make().unwrap_or_else(|e| failed_null("ibv_alloc_null_mr", &e))
}

/// Slot `advise_mr`: prefetch.
pub unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sges: u32,
) -> c_int {
    // SAFETY: the program's live domain and its entries.
    done("ibv_advise_mr", unsafe { advise(pd, advice, flags, sg_list, num_sges) })
}

/// # Safety
/// `num_sges` entries.
unsafe fn advise(
    pd: *mut ibv_pd,
    advice: ibv_advise_mr_advice,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sges: u32,
) -> Result<(), Error> {
    let obj = live(pd)?;
    let (write, fault) = match advice {
        IBV_ADVISE_MR_ADVICE_PREFETCH => (false, true),
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE => (true, true),
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT => (false, false),
        other => return Err(Error::new(Errno::ENOTSUP, format!("advice {other} is not known"))),
    };
    if flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 {
        return Err(Error::invalid(
            format!("flags are {flags:#x}"),
            "only IBV_ADVISE_MR_FLAG_FLUSH is known",
        ));
    }
    if num_sges == 0 || sg_list.is_null() {
        return Err(Error::invalid("sg_list", "it is empty"));
    }
    // SAFETY: the caller's promise.
    let entries = unsafe { core::slice::from_raw_parts(sg_list, num_sges as usize) };
    let sges: Vec<Sge> =
        entries.iter().map(|e| Sge { addr: e.addr, length: e.length, lkey: e.lkey }).collect();
    obj.pd.prefetch(&sges, write, fault, flags & IBV_ADVISE_MR_FLAG_FLUSH != 0)
}
