//! Services that a subnet's administrator has found.

use core::ffi::c_int;
use core::ptr::null_mut;

use crate::abi::cma::*;
use crate::abi::kernel::{QUERY_IB_SERVICE, Services};
use crate::error::{Errno, Outcome};
use crate::id::Id;
use crate::{addrinfo, command};

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
