//! Objects imported by their handles. Objects of another process cannot be imported.
use super::files::{CMD_FD_NAME, close_file, enter_context, find_dm, find_mr, find_pd, inode};
use super::{device, dm, end, failed_null};
use crate::abi::*;
use crate::handles::{Origin, live, reserve};
use crate::objects::{MrKind, MrObj, PdObj};
use adverb_device::Error;
use core::ffi::c_int;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::AtomicUsize;

/// Opens the device behind a duplicated `cmd_fd`. The descriptor then belongs to the new context.
pub unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    import_device(cmd_fd).unwrap_or_else(|e| failed_null("ibv_import_device", &e))
}

fn import_device(cmd_fd: RawFd) -> Result<*mut ibv_context, Error> {
    let (id, device) = enter_context(inode(cmd_fd)?).ok_or_else(|| not_ours(cmd_fd))?;
    // SAFETY: an open descriptor (its inode was read), which the program passes to the library.
    let fd = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
    device::make_context(device, fd, Some(id)).inspect_err(|_| close_file(id))
}

/// Why a descriptor leads to no context: it belongs to another process, or it is none of this
/// library's.
fn not_ours(fd: RawFd) -> Error {
    let target = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    let name = CMD_FD_NAME.to_string_lossy();
    if target.to_string_lossy().contains(&*name) {
        Error::unsupported(format!(
            "cmd_fd {fd} belongs to a context of another process; objects can be shared only \
             within a process"
        ))
    } else {
        Error::invalid(format!("cmd_fd is {fd}"), "not the cmd_fd of a context")
    }
}

/// Imports a protection domain.
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    import_pd(context, pd_handle).unwrap_or_else(|e| failed_null("ibv_import_pd", &e))
}

fn import_pd(context: *mut ibv_context, handle: u32) -> Result<*mut ibv_pd, Error> {
    let file = live(context)?.file;
    let place = reserve::<PdObj>()?;
    let inner =
        PdObj { pd: find_pd(file, handle)?, parent: None, custom_users: AtomicUsize::new(0) };
    Ok(place.fill(ibv_pd { context, handle }, inner, Origin { context, file, handle }))
}

/// Ends the imported handle. The domain itself stays.
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    if !pd.is_null() {
        end("ibv_unimport_pd", pd, |_| Ok(()));
    }
}

/// Imports a memory region. As in rdma-core, the importer does not learn the address and length.
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

/// Ends the imported handle. The region itself stays.
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    if !mr.is_null() {
        end("ibv_unimport_mr", mr, |_| Ok(()));
    }
}

/// Imports device memory.
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, dm_handle: u32) -> *mut ibv_dm {
    import_dm(context, dm_handle).unwrap_or_else(|e| failed_null("ibv_import_dm", &e))
}

fn import_dm(context: *mut ibv_context, handle: u32) -> Result<*mut ibv_dm, Error> {
    let file = live(context)?.file;
    let place = reserve()?;
    Ok(dm::give(place, Origin { context, file, handle }, find_dm(file, handle)?))
}

/// Ends the imported handle. The memory itself stays.
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    end("ibv_unimport_dm", dm, |_| Ok(()));
}
