//! XRC domains. Within this process, domains opened on the same file are one domain.
use super::files::{Inode, inode};
use super::{end, failed_null};
use crate::abi::*;
use crate::handles::{Origin, live, reserve};
use crate::objects::XrcdObj;
use adverb_device::{Error, Xrcd};
use adverb_sync::Mutex;
use core::ffi::c_int;
use nix::errno::Errno;
use std::collections::BTreeMap;

/// Files on which domains are open, and the number of domains on each.
static FILES: Mutex<BTreeMap<Inode, usize>> = Mutex::new(BTreeMap::new());

/// Slot `open_xrcd`.
pub unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: the program's attributes.
    open(context, unsafe { &*attr }).unwrap_or_else(|e| failed_null("ibv_open_xrcd", &e))
}

fn open(context: *mut ibv_context, attr: &ibv_xrcd_init_attr) -> Result<*mut ibv_xrcd, Error> {
    let obj = live(context)?;
    const NEEDED: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if attr.comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED {
        return Err(Error::unsupported(format!(
            "comp_mask is {:#x}: unknown bits are set",
            attr.comp_mask
        )));
    }
    if attr.comp_mask != NEEDED {
        return Err(Error::invalid("comp_mask", "fd and oflags are both needed"));
    }
    if attr.oflags & !(libc::O_CREAT | libc::O_EXCL) != 0 {
        return Err(Error::invalid(
            format!("oflags is {:#o}", attr.oflags),
            "O_CREAT and O_EXCL are possible",
        ));
    }
    let place = reserve::<XrcdObj>()?;
    let origin = Origin { context, file: obj.file, handle: 0 };
    let give =
        |xrcd, opened_on| place.fill(ibv_xrcd { context }, XrcdObj { xrcd, opened_on }, origin);
    if attr.fd == -1 {
        return Ok(give(Xrcd::open(&obj.context, None)?, None));
    }
    let file = inode(attr.fd)?;
    let mut files = FILES.lock();
    let known = files.contains_key(&file);
    if !known && attr.oflags & libc::O_CREAT == 0 {
        return Err(Error::new(
            Errno::EAGAIN,
            "no domain is open on this file, and O_CREAT is not set",
        ));
    }
    if known && attr.oflags & libc::O_EXCL != 0 {
        return Err(Error::invalid("oflags has O_EXCL", "a domain is open on this file already"));
    }
    let xrcd = Xrcd::open(&obj.context, Some((file.device, file.number)))?;
    *files.entry(file).or_default() += 1;
    Ok(give(xrcd, Some(file)))
}

/// Slot `close_xrcd`.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    end("ibv_close_xrcd", xrcd, |obj| {
        obj.xrcd.close()?;
        let mut files = FILES.lock();
        if let Some(file) = obj.opened_on
            && let Some(n) = files.get_mut(&file)
        {
            *n -= 1;
            if *n == 0 {
                files.remove(&file);
            }
        }
        Ok(())
    })
}
