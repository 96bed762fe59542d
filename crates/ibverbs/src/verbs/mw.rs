//! Memory windows.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Slot `alloc_mw`.
pub unsafe extern "C" fn alloc_mw(_pd: *mut ibv_pd, _mw_type: ibv_mw_type) -> *mut ibv_mw {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Slot `bind_mw`: windows of type 1.
pub unsafe extern "C" fn bind_mw(_qp: *mut ibv_qp, _mw: *mut ibv_mw, _mw_bind: *mut ibv_mw_bind) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `dealloc_mw`.
pub unsafe extern "C" fn dealloc_mw(_mw: *mut ibv_mw) -> c_int {
    EOPNOTSUPP // PHASE 2
}
