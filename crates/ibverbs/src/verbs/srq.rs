//! Shared receive queues.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Creates an SRQ.
pub unsafe extern "C" fn ibv_create_srq(
    _pd: *mut ibv_pd,
    _srq_init_attr: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Changes the length or the limit of an SRQ.
pub unsafe extern "C" fn ibv_modify_srq(
    _srq: *mut ibv_srq,
    _srq_attr: *mut ibv_srq_attr,
    _srq_attr_mask: c_int,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// The attributes of an SRQ.
pub unsafe extern "C" fn ibv_query_srq(_srq: *mut ibv_srq, _srq_attr: *mut ibv_srq_attr) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Destroys an SRQ.
pub unsafe extern "C" fn ibv_destroy_srq(_srq: *mut ibv_srq) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `create_srq_ex`.
pub unsafe extern "C" fn create_srq_ex(
    _context: *mut ibv_context,
    _attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Slot `get_srq_num`.
pub unsafe extern "C" fn get_srq_num(_srq: *mut ibv_srq, _srq_num: *mut u32) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `post_srq_recv`.
pub unsafe extern "C" fn post_srq_recv(
    _srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad_wr: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: the program passes a place for the request that failed.
    unsafe { bad_wr.write(wr) };
    EOPNOTSUPP // PHASE 2
}

/// Slot `post_srq_ops`: tag matching.
pub unsafe extern "C" fn post_srq_ops(
    _srq: *mut ibv_srq,
    wr: *mut ibv_ops_wr,
    bad_wr: *mut *mut ibv_ops_wr,
) -> c_int {
    // SAFETY: the program passes a place for the request that failed.
    unsafe { bad_wr.write(wr) };
    EOPNOTSUPP // PHASE 2
}
