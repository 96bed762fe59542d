//! Addresses by name as an event (rdma-core 60): looked up at once, told through the channel.

use core::ffi::{c_char, c_int};
use core::ptr::null_mut;

use crate::abi::cma::*;
use crate::abi::kernel::{QUERY_IB_SERVICE, ResolveIbService, SERVICE_FLAG_ID, SERVICE_FLAG_NAME, Services};
use crate::abi::kernel::{WriteCmEvent, WrittenParam};
use crate::addrinfo::{self, Why};
use crate::command;
use crate::error::{Errno, Outcome, zero_or_minus_one};
use crate::id::{AF_IB, Id};

/// Puts an event into the id's channel.
fn write_event(id: &Id, event: EventType, status: c_int, arg: u64) -> Outcome {
    // SAFETY: integers.
    let mut param: WrittenParam = unsafe { core::mem::zeroed() };
    param.arg = arg;
    let body = WriteCmEvent { id: id.handle.get(), reserved: 0, event, status: status as u32, param };
    command::perform(id.fd(), body)
}

/// By the subnet's list of services, which answers with an event of its own.
///
/// # Safety
/// A string or null.
unsafe fn by_service(id: &Id, service: *const c_char) -> Outcome {
    if service.is_null() {
        return Err(Errno(libc::EINVAL));
    }
    // SAFETY: the caller's word.
    let service = unsafe { core::ffi::CStr::from_ptr(service) }.to_bytes();
    let mut body = ResolveIbService {
        id: id.handle.get(),
        reserved: 0,
        service_id: 0,
        service_name: [0; 64],
        flags: 0,
        reserved1: 0,
    };
    match number(service) {
        Some(number) => {
            body.service_id = number;
            body.flags = SERVICE_FLAG_ID;
        }
        None => {
            // The last byte stays zero.
            let len = service.len().min(body.service_name.len() - 1);
            body.service_name[..len].copy_from_slice(&service[..len]);
            body.flags = SERVICE_FLAG_NAME;
        }
    }
    command::perform(id.fd(), body)?;
    id.complete()
}

/// A number as C writes it: decimal, hexadecimal with 0x, octal with 0.
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
/// Strings or null; hints whose addresses are as long as they say.
unsafe fn start(
    id: &Id,
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
) -> Outcome {
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
        // SAFETY: made above, and nobody else has it.
        unsafe { addrinfo::rdma_freeaddrinfo(found) };
    })?;
    id.complete()
}

/// The event of an answer has been read: what a subnet's administrator found is fetched.
pub fn arrived(id: &Id) -> Outcome {
    if id.with(|state| !state.resolved.is_null()) {
        return Ok(());
    }
    let fetched = fetch_services(id);
    match fetched {
        Ok(found) => id.with(|state| state.resolved = found),
        Err(_) => failed(id),
    }
    fetched.map(|_| ())
}

/// The search has failed; another one may begin.
pub fn failed(id: &Id) {
    id.with(|state| state.resolving = false);
}

fn fetch_services(id: &Id) -> Outcome<*mut rdma_addrinfo> {
    // SAFETY: the answer of this option; integers.
    let found: Box<Services> =
        Box::new(unsafe { command::query(id.fd(), id.handle.get(), QUERY_IB_SERVICE) }?);
    let found = &found.recs[..(found.num_service_recs as usize).min(found.recs.len())];
    if found.is_empty() {
        return Err(Errno(libc::ENOENT));
    }
    let mut list: *mut rdma_addrinfo = null_mut();
    // From the end, so that the first comes to be at the front.
    for record in found.iter().rev() {
        let mut raw = [0u8; 48];
        raw[..2].copy_from_slice(&(AF_IB as u16).to_ne_bytes());
        raw[2..4].copy_from_slice(&record.pkey.to_ne_bytes());
        raw[8..24].copy_from_slice(&record.gid);
        raw[24..32].copy_from_slice(&record.id.to_ne_bytes());
        raw[32..40].copy_from_slice(&u64::MAX.to_ne_bytes());
        // SAFETY: numbers and sizes; what was made is written before it is used, and freed on
        // failure.
        unsafe {
            let one = libc::calloc(1, size_of::<rdma_addrinfo>()).cast::<rdma_addrinfo>();
            let address = libc::calloc(1, raw.len());
            if one.is_null() || address.is_null() {
                libc::free(one.cast());
                libc::free(address);
                addrinfo::rdma_freeaddrinfo(list);
                return Err(Errno(libc::ENOMEM));
            }
            core::ptr::copy_nonoverlapping(raw.as_ptr(), address.cast(), raw.len());
            (*one).ai_flags = RAI_SA;
            (*one).ai_family = AF_IB;
            (*one).ai_port_space = PS_IB as c_int;
            (*one).ai_dst_addr = address.cast();
            (*one).ai_dst_len = raw.len() as u32;
            (*one).ai_next = list;
            list = one;
        }
    }
    Ok(list)
}

/// `rdma_resolve_addrinfo`: 0, or -1 with `errno` set: EBUSY if the last answer has not been
/// fetched.
///
/// # Safety
/// An id that exists, or null; strings and hints or null.
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
        unsafe { start(id, node, service, hints.as_ref()) }.inspect_err(|_| failed(id))
    }))
}

/// `rdma_query_addrinfo`: 0, or -1 with `errno` set: ENOENT if there is no answer. The list is the
/// caller's.
///
/// # Safety
/// An id that exists and room for a pointer, or null.
pub unsafe extern "C-unwind" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    info: *mut *mut rdma_addrinfo,
) -> c_int {
    if info.is_null() {
        return zero_or_minus_one(Err(Errno(libc::EINVAL)));
    }
    // SAFETY: the caller's word.
    zero_or_minus_one(unsafe { Id::of(id) }.and_then(|id| {
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

/// `rdma_write_cm_event`: an event of the program's own (`RDMA_CM_EVENT_USER`). 0, or -1 with
/// `errno` set.
///
/// # Safety
/// An id that exists.
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
