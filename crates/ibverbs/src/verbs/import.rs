//! Handles, and objects taken over by them.
//!
//! In rdma-core several contexts may stand on one open device file, and objects are named by handles within it. Here the
//! file is a number: `cmd_fd` is an empty memory file whose inode leads to it. A file is known to its own process only:
//! objects of another process cannot be taken over.
use super::failed_null;
use super::{device, dm};
use crate::abi::*;
use crate::errno;
use crate::objects::{ContextObj, DeviceObj, DmObj, MrKind, MrObj, Object, PdObj};
use adverb_device::{Dm, Error, Mr, Pd};
use adverb_sync::Mutex;
use core::ffi::{CStr, c_int, c_void};
use core::ptr::without_provenance_mut;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The name of the memory files behind `cmd_fd`, as `/proc/self/fd` shows it.
pub(super) const CMD_FD_NAME: &CStr = c"adverb-cmd";

/// An open device file: contexts on it share their objects' handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileId(usize);

impl FileId {
    /// As the private word of a context.
    pub(super) fn to_ptr(self) -> *mut c_void {
        without_provenance_mut(self.0)
    }
    /// The file of a context.
    pub(super) fn of(context: &ContextObj) -> Self {
        FileId(context.table.priv_.addr())
    }
    /// The file of a context handle.
    ///
    /// # Safety
    /// A live context.
    pub(super) unsafe fn of_handle(context: *mut ibv_context) -> Self {
        // SAFETY: the caller's promise.
        Self::of(unsafe { ContextObj::behind(context) })
    }
}

struct File {
    id: FileId,
    /// Device and inode of `cmd_fd`.
    inode: (u64, u64),
    device: Arc<DeviceObj>,
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

fn inode(fd: RawFd) -> Result<(u64, u64), Error> {
    // SAFETY: all zero bytes are a `stat`, filled by the call.
    let (stat, done) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let done = libc::fstat(fd, &raw mut stat);
        (stat, done)
    };
    if done == 0 { Ok((stat.st_dev, stat.st_ino)) } else { Err(Errno::last().into()) }
}

/// Enters the file of a newly opened device.
pub(super) fn open_file(cmd_fd: &OwnedFd, device: &Arc<DeviceObj>) -> Result<FileId, Error> {
    let inode = inode(cmd_fd.as_raw_fd())?;
    let mut handles = HANDLES.lock();
    let id = FileId(handles.next_file);
    handles.next_file += 1;
    handles.files.push(File { id, inode, device: device.clone(), contexts: 1 });
    Ok(id)
}

/// A context on the file was closed; with the last one its handles end.
pub(super) fn close_file(id: FileId) {
    let mut handles = HANDLES.lock();
    let Some(at) = handles.files.iter().position(|f| f.id == id) else { return };
    handles.files[at].contexts -= 1;
    if handles.files[at].contexts == 0 {
        handles.files.swap_remove(at);
        handles.pds.retain(|_, (file, _)| *file != id);
        handles.mrs.retain(|_, (file, _)| *file != id);
        handles.dms.retain(|_, (file, _)| *file != id);
    }
}

macro_rules! registry {
    ($($enter:ident $leave:ident $find:ident $map:ident $object:ty, $what:literal;)*) => { $(
        /// Gives an object a handle.
        pub(super) fn $enter(file: FileId, object: &Arc<$object>) -> u32 {
            let handle = new_handle();
            HANDLES.lock().$map.insert(handle, (file, object.clone()));
            handle
        }
        /// Ends a handle.
        pub(super) fn $leave(handle: u32) {
            HANDLES.lock().$map.remove(&handle);
        }
        fn $find(file: FileId, handle: u32) -> Result<Arc<$object>, Error> {
            match HANDLES.lock().$map.get(&handle) {
                Some((of, object)) if *of == file => Ok(object.clone()),
                _ => Err(Error::new(
                    Errno::ENOENT,
                    format!(concat!("no ", $what, " of this context's device file has the handle {}"), handle),
                )),
            }
        }
    )* };
}

registry! {
    enter_pd leave_pd find_pd pds Pd, "protection domain";
    enter_mr leave_mr find_mr mrs Mr, "memory region";
    enter_dm leave_dm find_dm dms Dm, "device memory";
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
                (file.id, file.device.clone())
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
    // SAFETY: the program's live context.
    match find_pd(unsafe { FileId::of_handle(context) }, pd_handle) {
        Ok(pd) => PdObj { c: ibv_pd { context, handle: pd_handle }, pd, parent: None }.into_handle(),
        Err(e) => failed_null("ibv_import_pd", &e),
    }
}

/// Gives it back: the domain itself stays.
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    if !pd.is_null() {
        // SAFETY: an imported handle that the program gives up.
        unsafe { PdObj::free(pd) };
    }
}

/// Takes over a memory region. Address and length are not known to the importer, as in rdma-core.
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, mr_handle: u32) -> *mut ibv_mr {
    // SAFETY: the program's live domain and its context.
    let (context, file) = unsafe { ((*pd).context, FileId::of_handle((*pd).context)) };
    match find_mr(file, mr_handle) {
        Ok(mr) => {
            let c = ibv_mr {
                context,
                pd,
                addr: core::ptr::null_mut(),
                length: 0,
                handle: mr_handle,
                lkey: mr.key(),
                rkey: mr.key(),
            };
            MrObj { c, mr, kind: MrKind::Imported }.into_handle()
        }
        Err(e) => failed_null("ibv_import_mr", &e),
    }
}

/// Gives it back: the region itself stays.
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    if !mr.is_null() {
        // SAFETY: an imported handle that the program gives up.
        unsafe { MrObj::free(mr) };
    }
}

/// Takes over device memory.
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    // SAFETY: the program's live context.
    match find_dm(unsafe { FileId::of_handle(context) }, dm_handle) {
        Ok(found) => dm::give(context, dm_handle, found),
        Err(e) => failed_null("ibv_import_dm", &e),
    }
}

/// Gives it back: the memory itself stays.
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    if dm.is_null() {
        errno::set(libc::EINVAL);
        return;
    }
    // SAFETY: an imported handle that the program gives up.
    unsafe { DmObj::free(dm) };
}
