//! Completion counters.

use core::ffi::c_int;

use libc::{EOPNOTSUPP, size_t};

use crate::abi::*;
use crate::errno;

/// Support for completion counters, of the size the program knows.
pub unsafe extern "C" fn _ibv_query_comp_cntr_caps(
    _context: *mut ibv_context,
    _caps: *mut ibv_comp_cntr_caps,
    _caps_size: size_t,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Creates a counter.
pub unsafe extern "C" fn ibv_create_comp_cntr(
    _context: *mut ibv_context,
    _attr: *mut ibv_comp_cntr_init_attr,
) -> *mut ibv_comp_cntr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Destroys a counter.
pub unsafe extern "C" fn ibv_destroy_comp_cntr(_cntr: *mut ibv_comp_cntr) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Sets the count of successes.
pub unsafe extern "C" fn ibv_set_comp_cntr(_cntr: *mut ibv_comp_cntr, _value: u64) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Sets the count of errors.
pub unsafe extern "C" fn ibv_set_err_comp_cntr(_cntr: *mut ibv_comp_cntr, _value: u64) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Adds to the count of successes.
pub unsafe extern "C" fn ibv_inc_comp_cntr(_cntr: *mut ibv_comp_cntr, _amount: u64) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Adds to the count of errors.
pub unsafe extern "C" fn ibv_inc_err_comp_cntr(_cntr: *mut ibv_comp_cntr, _amount: u64) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Reads the count of successes.
pub unsafe extern "C" fn ibv_read_comp_cntr(_cntr: *mut ibv_comp_cntr, _value: *mut u64) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Reads the count of errors.
pub unsafe extern "C" fn ibv_read_err_comp_cntr(_cntr: *mut ibv_comp_cntr, _value: *mut u64) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Counts the completions of a QP.
pub unsafe extern "C" fn ibv_qp_attach_comp_cntr(
    _qp: *mut ibv_qp,
    _cntr: *mut ibv_comp_cntr,
    _attr: *mut ibv_qp_attach_comp_cntr_attr,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}
