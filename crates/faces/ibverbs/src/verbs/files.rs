//! Open device files, and the objects that are named by handles.
//!
//! In rdma-core, several contexts may share one open device file, and handles name the objects
//! within the file. In this library the file is a number, and `cmd_fd` is an empty memory file
//! whose inode identifies the number. Only the process that opened a file knows it.
use crate::handles::FileId;
use crate::listed::DeviceObj;
use adverb_device::{Dm, Error, Mr, Pd};
use adverb_sync::Mutex;
use core::ffi::CStr;
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The name of the memory files behind `cmd_fd`, as `/proc/self/fd` shows it.
pub(super) const CMD_FD_NAME: &CStr = c"adverb-cmd";

/// The identity of a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Inode {
    pub device: u64,
    pub number: u64,
}

struct File {
    id: FileId,
    /// The file of `cmd_fd`.
    inode: Inode,
    device: &'static DeviceObj,
    contexts: usize,
}

/// Objects by handle, each with the file that it belongs to.
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

/// A handle that no other object in this process has.
pub(super) fn new_handle() -> u32 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

pub(super) fn inode(fd: RawFd) -> Result<Inode, Error> {
    // SAFETY: all zero bytes are a valid `stat`, which the call fills.
    let (stat, done) = unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let done = libc::fstat(fd, &raw mut stat);
        (stat, done)
    };
    match done {
        0 => Ok(Inode { device: stat.st_dev, number: stat.st_ino }),
        _ => Err(Errno::last().into()),
    }
}

/// Registers the file of a newly opened device.
pub(super) fn open_file(cmd_fd: &OwnedFd, device: &'static DeviceObj) -> Result<FileId, Error> {
    let inode = inode(cmd_fd.as_raw_fd())?;
    let mut handles = HANDLES.lock();
    let id = FileId(handles.next_file);
    handles.next_file += 1;
    handles.files.push(File { id, inode, device, contexts: 1 });
    Ok(id)
}

/// Counts one more context on the file whose `cmd_fd` has this inode, if there is such a file.
pub(super) fn enter_context(inode: Inode) -> Option<(FileId, &'static DeviceObj)> {
    let mut handles = HANDLES.lock();
    let file = handles.files.iter_mut().find(|f| f.inode == inode)?;
    file.contexts += 1;
    Some((file.id, file.device))
}

/// Counts a closed context on the file. After the last one, no object can be imported from the
/// file. Objects that the program did not destroy keep their handles and can still be destroyed.
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
        pub(super) fn $enter(file: FileId, object: &Arc<$object>) -> u32 {
            let handle = new_handle();
            HANDLES.lock().$map.insert(handle, (file, object.clone()));
            handle
        }
        /// Ends an object and its handle. The program may have several pointers to the object. The
        /// result is ENOENT if the object already ended through another pointer.
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
        /// The object with this handle in a file.
        pub(super) fn $find(file: FileId, handle: u32) -> Result<Arc<$object>, Error> {
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
    enter_pd end_pd find_pd pds Pd, "protection domain";
    enter_mr end_mr find_mr mrs Mr, "memory region";
    enter_dm end_dm find_dm dms Dm, "device memory";
}
