//! Options, migration between channels, and enhanced connection establishment.

use core::ffi::{c_int, c_void};

use crate::abi::cma::*;
use crate::error::{Errno, ErrnoResult, zero_or_minus_one};
use crate::event::object;
use crate::id::Id;
use crate::{channel, command};
use adverb_abi::ibv_ece;
use adverb_abi::rdma_user_cm::{
    Request, rdma_ucm_destroy_id_resp, rdma_ucm_migrate_id, rdma_ucm_set_option,
};

/// Migrates an id to a channel, or with null to a channel of its own. Waits until events read
/// before have been acknowledged.
pub fn migrate(id: &Id, to: *mut rdma_event_channel) -> ErrnoResult {
    let (was_sync, sync) = (id.with(|s| s.sync), to.is_null());
    if was_sync && sync {
        return Err(Errno(libc::EINVAL));
    }
    let to = if sync { channel::create()? } else { to };
    let fd = channel::fd(to)?;
    let body = rdma_ucm_migrate_id { response: 0, id: id.handle.get(), fd: id.fd() as u32 };
    let moved: ErrnoResult<rdma_ucm_destroy_id_resp> = command::ask(fd, Request::MigrateId(body));
    let moved = moved.inspect_err(|_| {
        if sync {
            // SAFETY: the channel was created above, and no other code knows it.
            unsafe { channel::rdma_destroy_event_channel(to) };
        }
    })?;
    if was_sync {
        object::drop_of(id);
        // SAFETY: the channel belonged to the id, which has left it.
        unsafe { channel::rdma_destroy_event_channel(id.public.channel.get()) };
    }
    id.with(|s| s.sync = sync);
    id.public.channel.set(to);
    id.wait_acknowledged(moved.events_reported, None, c"rdma_migrate_id");
    Ok(())
}

/// Sets an option.
///
/// # Safety
/// `value` points to `len` bytes, or is null.
pub unsafe fn set(
    id: &Id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: usize,
) -> ErrnoResult {
    let body = rdma_ucm_set_option {
        optval: value.expose_provenance() as u64,
        id: id.handle.get(),
        level: level as u32,
        optname: name as u32,
        optlen: u32::try_from(len).map_err(|_| Errno(libc::EINVAL))?,
    };
    // SAFETY: the caller's word.
    unsafe { command::perform_with_value(id.fd(), &Request::SetOption(body)) }.map(drop)
}

/// `rdma_migrate_id`: 0, or -1 with `errno` set. Null makes the id synchronous.
pub unsafe extern "C-unwind" fn rdma_migrate_id(
    id: *mut rdma_cm_id,
    to: *mut rdma_event_channel,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(|id| migrate(id, to)))
}

/// `rdma_set_option`: 0, or -1 with `errno` set.
pub unsafe extern "C-unwind" fn rdma_set_option(
    id: *mut rdma_cm_id,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: libc::size_t,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id).and_then(|id| set(id, level, name, value, len)) })
}

/// `rdma_set_local_ece`, for programs with their own queue pair. 0, or -1 with `errno` EINVAL.
pub unsafe extern "C-unwind" fn rdma_set_local_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    // SAFETY: the caller's word.
    let (id, ece) = unsafe { (Id::of(id), ece.as_ref()) };
    zero_or_minus_one(match (id, ece) {
        (Ok(id), Some(ece))
            if id.public.qp.get().is_null() && ece.vendor_id != 0 && ece.comp_mask == 0 =>
        {
            id.with(|state| state.local_ece = *ece);
            Ok(())
        }
        _ => Err(Errno(libc::EINVAL)),
    })
}

/// `rdma_get_remote_ece`, for programs with their own queue pair. 0, or -1 with `errno` EINVAL.
pub unsafe extern "C-unwind" fn rdma_get_remote_ece(
    id: *mut rdma_cm_id,
    ece: *mut ibv_ece,
) -> c_int {
    // SAFETY: the caller's word.
    let (id, ece) = unsafe { (Id::of(id), ece.as_mut()) };
    zero_or_minus_one(match (id, ece) {
        (Ok(id), Some(ece)) if id.public.qp.get().is_null() => {
            *ece = ibv_ece { comp_mask: 0, ..id.with(|state| state.remote_ece) };
            Ok(())
        }
        _ => Err(Errno(libc::EINVAL)),
    })
}
