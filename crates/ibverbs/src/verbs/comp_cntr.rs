//! Completion counters: not offered.

use core::ffi::c_int;

use libc::size_t;

use super::{failed, failed_null};
use crate::abi::*;
use adverb_device::Error;

fn refused(call: &str) -> c_int {
    failed(call, &Error::unsupported("completion counters are not offered"))
}

/// Support for completion counters, of the size the program knows: none.
pub unsafe extern "C" fn _ibv_query_comp_cntr_caps(
    _context: *mut ibv_context,
    caps: *mut ibv_comp_cntr_caps,
    caps_size: size_t,
) -> c_int {
    // SAFETY: the program's place of that many bytes.
    unsafe { caps.cast::<u8>().write_bytes(0, caps_size) };
    refused("ibv_query_comp_cntr_caps")
}

/// Creates a counter.
pub unsafe extern "C" fn ibv_create_comp_cntr(
    _context: *mut ibv_context,
    _attr: *mut ibv_comp_cntr_init_attr,
) -> *mut ibv_comp_cntr {
    failed_null("ibv_create_comp_cntr", &Error::unsupported("completion counters are not offered"))
}

/// Destroys a counter.
pub unsafe extern "C" fn ibv_destroy_comp_cntr(_cntr: *mut ibv_comp_cntr) -> c_int {
    refused("ibv_destroy_comp_cntr")
}

/// Sets the count of successes.
pub unsafe extern "C" fn ibv_set_comp_cntr(_cntr: *mut ibv_comp_cntr, _value: u64) -> c_int {
    refused("ibv_set_comp_cntr")
}

/// Sets the count of errors.
pub unsafe extern "C" fn ibv_set_err_comp_cntr(_cntr: *mut ibv_comp_cntr, _value: u64) -> c_int {
    refused("ibv_set_err_comp_cntr")
}

/// Adds to the count of successes.
pub unsafe extern "C" fn ibv_inc_comp_cntr(_cntr: *mut ibv_comp_cntr, _amount: u64) -> c_int {
    refused("ibv_inc_comp_cntr")
}

/// Adds to the count of errors.
pub unsafe extern "C" fn ibv_inc_err_comp_cntr(_cntr: *mut ibv_comp_cntr, _amount: u64) -> c_int {
    refused("ibv_inc_err_comp_cntr")
}

/// Reads the count of successes.
pub unsafe extern "C" fn ibv_read_comp_cntr(_cntr: *mut ibv_comp_cntr, _value: *mut u64) -> c_int {
    refused("ibv_read_comp_cntr")
}

/// Reads the count of errors.
pub unsafe extern "C" fn ibv_read_err_comp_cntr(_cntr: *mut ibv_comp_cntr, _value: *mut u64) -> c_int {
    refused("ibv_read_err_comp_cntr")
}

/// Counts the completions of a QP.
pub unsafe extern "C" fn ibv_qp_attach_comp_cntr(
    _qp: *mut ibv_qp,
    _cntr: *mut ibv_comp_cntr,
    _attr: *mut ibv_qp_attach_comp_cntr_attr,
) -> c_int {
    refused("ibv_qp_attach_comp_cntr")
}
