//! XRC domains.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Slot `open_xrcd`.
pub unsafe extern "C" fn open_xrcd(
    _context: *mut ibv_context,
    _attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Slot `close_xrcd`.
pub unsafe extern "C" fn close_xrcd(_xrcd: *mut ibv_xrcd) -> c_int {
    EOPNOTSUPP // PHASE 2
}
