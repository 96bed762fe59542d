//! Completion queues: creation, polling, arming.

use core::ffi::{c_int, c_void};

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Creates a CQ.
pub unsafe extern "C" fn ibv_create_cq(
    _context: *mut ibv_context,
    _cqe: c_int,
    _cq_context: *mut c_void,
    _channel: *mut ibv_comp_channel,
    _comp_vector: c_int,
) -> *mut ibv_cq {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Changes the length of a CQ.
pub unsafe extern "C" fn ibv_resize_cq(_cq: *mut ibv_cq, _cqe: c_int) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Destroys a CQ, after its events have been acknowledged (CHN-4).
pub unsafe extern "C" fn ibv_destroy_cq(_cq: *mut ibv_cq) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `create_cq_ex`.
pub unsafe extern "C" fn create_cq_ex(
    _context: *mut ibv_context,
    _init_attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Slot `modify_cq`: moderation (EXT-2).
pub unsafe extern "C" fn modify_cq(_cq: *mut ibv_cq, _attr: *mut ibv_modify_cq_attr) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `poll_cq`: the number of completions, or a negative value.
pub unsafe extern "C" fn poll_cq(_cq: *mut ibv_cq, _num_entries: c_int, _wc: *mut ibv_wc) -> c_int {
    -EOPNOTSUPP // PHASE 2
}

/// Slot `req_notify_cq` (CQN-1, CQN-2).
pub unsafe extern "C" fn req_notify_cq(_cq: *mut ibv_cq, _solicited_only: c_int) -> c_int {
    EOPNOTSUPP // PHASE 2
}
