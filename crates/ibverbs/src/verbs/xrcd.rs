//! XRC domains. Domains opened on the same file are one, within this process.
use super::{failed, failed_null};
use crate::abi::*;
use crate::objects::{ContextObj, Object, XrcdObj};
use adverb_device::{Error, Xrcd};
use adverb_sync::Mutex;
use core::ffi::c_int;
use nix::errno::Errno;
use std::collections::BTreeMap;

/// Files that domains are open on (device and inode), and how often.
static FILES: Mutex<BTreeMap<(u64, u64), usize>> = Mutex::new(BTreeMap::new());

/// What a domain was opened on, by the address of its handle.
static OPEN: Mutex<BTreeMap<usize, (u64, u64)>> = Mutex::new(BTreeMap::new());

/// Slot `open_xrcd`.
pub unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    // SAFETY: the program's live context and its attributes.
    unsafe { open(context, &*attr) }.unwrap_or_else(|e| failed_null("ibv_open_xrcd", &e))
}

/// # Safety
/// A live context.
unsafe fn open(context: *mut ibv_context, attr: &ibv_xrcd_init_attr) -> Result<*mut ibv_xrcd, Error> {
    const NEEDED: u32 = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
    if attr.comp_mask >= IBV_XRCD_INIT_ATTR_RESERVED {
        return Err(Error::unsupported(format!(
            "comp_mask is {:#x}: it has bits that are not known",
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
    // SAFETY: the caller's promise.
    let obj = unsafe { ContextObj::behind(context) };
    let give = |xrcd| XrcdObj { c: ibv_xrcd { context }, xrcd }.into_handle();
    if attr.fd == -1 {
        return Ok(give(Xrcd::open(&obj.context, None)?));
    }
    let file = inode(attr.fd)?;
    let mut files = FILES.lock();
    let known = files.contains_key(&file);
    if !known && attr.oflags & libc::O_CREAT == 0 {
        return Err(Error::new(Errno::EAGAIN, "no domain is open on that file and O_CREAT was not given"));
    }
    if known && attr.oflags & libc::O_EXCL != 0 {
        return Err(Error::invalid("oflags has O_EXCL", "a domain is open on that file already"));
    }
    let handle = give(Xrcd::open(&obj.context, Some(file))?);
    *files.entry(file).or_default() += 1;
    OPEN.lock().insert(handle as usize, file);
    Ok(handle)
}

fn inode(fd: c_int) -> Result<(u64, u64), Error> {
    // SAFETY: all zero bytes are a `stat`, filled by the call.
    let (stat, done) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let done = libc::fstat(fd, &raw mut stat);
        (stat, done)
    };
    if done == 0 { Ok((stat.st_dev, stat.st_ino)) } else { Err(Errno::last().into()) }
}

/// Slot `close_xrcd`.
pub unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    // SAFETY: the program's live domain.
    let obj: &XrcdObj = unsafe { XrcdObj::behind(xrcd) };
    if let Err(e) = obj.xrcd.close() {
        return failed("ibv_close_xrcd", &e);
    }
    if let Some(file) = OPEN.lock().remove(&(xrcd as usize)) {
        let mut files = FILES.lock();
        if let Some(n) = files.get_mut(&file) {
            *n -= 1;
            if *n == 0 {
                files.remove(&file);
            }
        }
    }
    // SAFETY: as above; nothing uses it any more.
    unsafe { XrcdObj::free(xrcd) };
    0
}
