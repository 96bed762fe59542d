//! Handles, and objects taken over by them.
//!
//! In rdma-core several contexts may stand on one open device file, and objects are named by
//! handles within it. Here the file is a number: `cmd_fd` is an empty memory file whose inode leads
//! to it. A file is known to its own process only: objects of another process cannot be taken over.
use super::{device, dm, failed_null};
use crate::abi::*;
use crate::handles::{Handle, Origin, live, reserve};
use crate::objects::{DeviceObj, MrKind, MrObj, PdObj};
use adverb_device::{Dm, Error, Mr, Pd};
use adverb_sync::Mutex;
use core::ffi::{CStr, c_int};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// The name of the memory files behind `cmd_fd`, as `/proc/self/fd` shows it.
pub(super) const CMD_FD_NAME: &CStr = c"adverb-cmd";

/// An open device file: contexts on it share their objects' handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId(usize);

impl FileId {
    /// Its number, which no other file of this process ever has.
    pub fn number(self) -> usize {
        self.0
    }
}

struct File {
    id: FileId,
    /// Device and inode of `cmd_fd`.
    inode: (u64, u64),
    device: &'static DeviceObj,
    contexts: usize,
}

/// Objects by handle, each with the file it belongs to.
struct Handles {
    next_file: usize,
    files: Vec<File>,
    pds: BTreeMap<u32, (FileId, Arc<Pd>)>,
    mrs: BTreeMap<u32, (FileId, Arc<Mr>)>,
    dms: BTreeMap<u32, (FileId, Arc<Dm>)>,
}

static HANDLES: Mutex<Handles> = Mutex::new(Handles {
    next_file: 1,
    files: Vec::new(),
    pds: BTreeMap::new(),
    mrs: BTreeMap::new(),
    dms: BTreeMap::new(),
});

static NEXT: AtomicU32 = AtomicU32::new(1);

/// A handle nothing else in this process has.
pub(super) fn new_handle() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn inode(fd: RawFd) -> Result<(u64, u64), Error> {
    // SAFETY: all zero bytes are a `stat`, filled by the call.
    let (stat, done) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let done = libc::fstat(fd, &raw mut stat);
        (stat, done)
    };
    if done == 0 { Ok((stat.st_dev, stat.st_ino)) } else { Err(Errno::last().into()) }
}

/// Enters the file of a newly opened device.
pub(super) fn open_file(cmd_fd: &OwnedFd, device: &'static DeviceObj) -> Result<FileId, Error> {
    let inode = inode(cmd_fd.as_raw_fd())?;
    let mut handles = HANDLES.lock();
    let id = FileId(handles.next_file);
    handles.next_file += 1;
    handles.files.push(File { id, inode, device, contexts: 1 });
    Ok(id)
}

/// A context on the file was closed. After the last one nothing can be taken over from it; objects
/// that the program did not destroy keep their numbers, and can still be destroyed.
pub(crate) fn close_file(id: FileId) {
    let mut handles = HANDLES.lock();
    let Some(at) = handles.files.iter().position(|f| f.id == id) else { return };
    handles.files[at].contexts -= 1;
    if handles.files[at].contexts == 0 {
        handles.files.swap_remove(at);
    }
}

macro_rules! registry {
    ($($enter:ident $end:ident $find:ident $map:ident $object:ty, $what:literal;)*) => { $(
        /// Gives an object a handle.
        pub(super) fn $enter(file: usize, object: &Arc<$object>) -> u32 {
            let handle = new_handle();
            HANDLES.lock().$map.insert(handle, (FileId(file), object.clone()));
            handle
        }
        /// Ends an object and its handle, however many pointers the program has to it: ENOENT when
        /// it ended by another.
        pub(super) fn $end(handle: u32, end: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
            let Some(entry) = HANDLES.lock().$map.remove(&handle) else {
                return Err(Error::new(
                    Errno::ENOENT,
                    format!(concat!("the ", $what, " with the handle {} was destroyed"), handle),
                ));
            };
            end().inspect_err(|_| {
                HANDLES.lock().$map.insert(handle, entry);
            })
        }
        fn $find(file: usize, handle: u32) -> Result<Arc<$object>, Error> {
            match HANDLES.lock().$map.get(&handle) {
                Some((of, object)) if of.0 == file => Ok(object.clone()),
                _ => Err(Error::new(
                    Errno::ENOENT,
                    format!(concat!("no ", $what, " of this context's device file has the handle {}"), handle),
                )),
            }
        }
    )* };
}

registry! {
    enter_pd end_pd find_pd pds Pd, "protection domain";
    enter_mr end_mr find_mr mrs Mr, "memory region";
    enter_dm end_dm find_dm dms Dm, "device memory";
}

/// Opens the device behind a duplicated `cmd_fd`, which belongs to the new context then.
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    import_device(cmd_fd).unwrap_or_else(|e| failed_null("ibv_import_device", &e))
}

fn import_device(cmd_fd: RawFd) -> Result<*mut ibv_context, Error> {
    let inode = inode(cmd_fd)?;
    let (id, device) = {
        let mut handles = HANDLES.lock();
        match handles.files.iter_mut().find(|f| f.inode == inode) {
            Some(file) => {
                file.contexts += 1;
                (file.id, file.device)
            }
            None => return Err(not_ours(cmd_fd)),
        }
    };
    // SAFETY: an open descriptor (its inode was read) that the program gives to us.
    let fd = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
    device::make_context(device, fd, Some(id)).inspect_err(|_| close_file(id))
}

/// Why a descriptor leads to no context: it is another process's, or nothing of ours.
fn not_ours(fd: RawFd) -> Error {
    let target = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let name = CMD_FD_NAME.to_string_lossy();
    if target.to_string_lossy().contains(&*name) {
        Error::unsupported(format!(
            "cmd_fd {fd} is of a context of another process; objects are shared within one"
        ))
    } else {
        Error::invalid(format!("cmd_fd is {fd}"), "it is not the cmd_fd of a context")
    }
}

/// Takes over a protection domain.
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    import_pd(context, pd_handle).unwrap_or_else(|e| failed_null("ibv_import_pd", &e))
}

fn import_pd(context: *mut ibv_context, handle: u32) -> Result<*mut ibv_pd, Error> {
    let file = live(context)?.file.number();
    let place = reserve::<PdObj>()?;
    let inner = PdObj { pd: find_pd(file, handle)?, parent: None, custom_users: AtomicUsize::new(0) };
    Ok(place.fill(ibv_pd { context, handle }, inner, Origin { context, file, handle }))
}

/// Gives back what was taken over: the handle ends, the object stays.
fn unimport<H: Handle>(call: &str, handle: *mut H) {
    match live(handle).and_then(|object| object.end()) {
        Ok(object) => object.finish(),
        Err(e) => {
            super::failed(call, &e);
        }
    }
}

/// Gives it back: the domain itself stays.
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    if !pd.is_null() {
        unimport("ibv_unimport_pd", pd);
    }
}

/// Takes over a memory region. Address and length are not known to the importer, as in rdma-core.
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    import_mr(pd, mr_handle).unwrap_or_else(|e| failed_null("ibv_import_mr", &e))
}

fn import_mr(pd: *mut ibv_pd, handle: u32) -> Result<*mut ibv_mr, Error> {
    let origin = Origin { handle, ..live(pd)?.origin() };
    let place = reserve::<MrObj>()?;
    let mr = find_mr(origin.file, handle)?;
    let (lkey, rkey) = (mr.key(), mr.key());
    let (context, addr) = (origin.context, core::ptr::null_mut());
    let visible = ibv_mr { context, pd, addr, length: 0, handle, lkey, rkey };
    Ok(place.fill(visible, MrObj { mr, kind: MrKind::Imported, _dmah: None }, origin))
}

/// Gives it back: the region itself stays.
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    if !mr.is_null() {
        unimport("ibv_unimport_mr", mr);
    }
}

/// Takes over device memory.
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    import_dm(context, dm_handle).unwrap_or_else(|e| failed_null("ibv_import_dm", &e))
}

fn import_dm(context: *mut ibv_context, handle: u32) -> Result<*mut ibv_dm, Error> {
    let file = live(context)?.file.number();
    let place = reserve()?;
    Ok(dm::give(place, Origin { context, file, handle }, find_dm(file, handle)?))
}

/// Gives it back: the memory itself stays.
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    unimport("ibv_unimport_dm", dm);
}
