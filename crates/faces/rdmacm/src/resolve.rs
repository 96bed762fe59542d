//! Lookup of addresses by name as an event (rdma-core 60). The lookup is done at once, and an event
//! in the channel reports the result.

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use crate::abi::cma::*;
use crate::addrinfo::{self, Why};
use crate::error::{Errno, ErrnoResult, non_null, zero_or_minus_one};
use crate::id::Id;
use crate::{command, event};
use adverb_abi::Plain;
use adverb_abi::rdma_user_cm::*;

/// Writes an event to the id's channel.
fn write_event(id: &Id, event: EventType, status: c_int, arg: u64) -> ErrnoResult {
    let mut param = WrittenParam::zeroed();
    param.arg = arg;
    let body = rdma_ucm_write_cm_event {
        id: id.handle.get(),
        reserved: 0,
        event,
        status: status as u32,
        param,
    };
    command::perform(id.fd(), Request::WriteCmEvent(body))
}

/// Looks up a service in the list of the subnet. An event reports the result.
///
/// # Safety
/// `service` is a string or null.
unsafe fn by_service(id: &Id, service: *const c_char) -> ErrnoResult {
    let service = non_null(service.cast_mut())?;
    // SAFETY: the caller's word.
    let service = unsafe { core::ffi::CStr::from_ptr(service) }.to_bytes();
    let mut body = rdma_ucm_resolve_ib_service {
        id: id.handle.get(),
        ..rdma_ucm_resolve_ib_service::zeroed()
    };
    match number(service) {
        Some(number) => {
            body.service_id = number;
            body.flags = RDMA_USER_CM_IB_SERVICE_FLAG_ID;
        }
        None => {
            // The last byte stays zero.
            let len = service.len().min(body.service_name.len() - 1);
            body.service_name[..len].copy_from_slice(&service[..len]);
            body.flags = RDMA_USER_CM_IB_SERVICE_FLAG_NAME;
        }
    }
    command::perform(id.fd(), Request::ResolveIbService(body))?;
    event::complete(id)
}

/// Parses a number in C notation: decimal, hexadecimal with 0x, octal with 0.
pub fn number(text: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(text).ok()?.trim_start();
    let lower = text.to_ascii_lowercase();
    if let Some(hex) = lower.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    match lower.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u64::from_str_radix(octal, 8).ok(),
        _ => lower.parse().ok(),
    }
}

/// # Safety
/// The strings are null or valid. The addresses in the hints have the lengths in the hints.
unsafe fn start(
    id: &Id,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> ErrnoResult {
    let flags = hints.map_or(0, |h| h.ai_flags);
    if flags & RAI_SA != 0 {
        if flags & RAI_DNS != 0 || !node.is_null() {
            return Err(Errno(libc::ENOTSUP));
        }
        // SAFETY: the caller's word.
        return unsafe { by_service(id, service) };
    }
    // SAFETY: the caller's word.
    let found = unsafe { addrinfo::look_up(node, service, hints) }.map_err(|why| match why {
        Why::Errno(why) => why,
        Why::Name(libc::EAI_SYSTEM) => Errno::last(),
        Why::Name(libc::EAI_MEMORY) => Errno(libc::ENOMEM),
        Why::Name(libc::EAI_AGAIN) => Errno(libc::EAGAIN),
        Why::Name(_) => Errno(libc::ENOENT),
    })?;
    id.with(|state| state.resolved = found);
    write_event(id, INTERNAL, 0, u64::from(ADDRINFO_RESOLVED)).inspect_err(|_| {
        let found = id.with(|state| core::mem::replace(&mut state.resolved, null_mut()));
        // SAFETY: the list was created above, and no other code has it.
        unsafe { addrinfo::rdma_freeaddrinfo(found) };
    })?;
    event::complete(id)
}

/// `rdma_resolve_addrinfo`: 0, or -1 with `errno` set; EBUSY if the last result has not been
/// fetched.
pub unsafe extern "C-unwind" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(|id| {
        if id.with(|state| core::mem::replace(&mut state.resolving, true)) {
            return Err(Errno(libc::EBUSY));
        }
        // SAFETY: the caller's word.
        unsafe { start(id, node, service, hints.as_ref()) }.inspect_err(|_| {
            id.with(|state| state.resolving = false);
        })
    }))
}

/// `rdma_query_addrinfo`: 0, or -1 with `errno` set; ENOENT if there is no result. The caller owns
/// the list.
pub unsafe extern "C-unwind" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(|id| {
        let info = non_null(info)?;
        let found = id.with(|state| {
            if !state.resolving || state.resolved.is_null() {
                return Err(Errno(libc::ENOENT));
            }
            state.resolving = false;
            Ok(core::mem::replace(&mut state.resolved, null_mut()))
        })?;
        // SAFETY: the caller's word.
        unsafe { info.write(found) };
        Ok(())
    }))
}

/// `rdma_write_cm_event`: writes an event of the program (`RDMA_CM_EVENT_USER`). 0, or -1 with
/// `errno` set.
pub unsafe extern "C-unwind" fn rdma_write_cm_event(
    id: *mut rdma_cm_id,
    event: EventType,
    status: c_int,
    arg: u64,
) -> c_int {
    if event != USER {
        return zero_or_minus_one(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(|id| write_event(id, event, status, arg)))
}
