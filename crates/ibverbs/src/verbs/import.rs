//! Objects taken over from another process or context.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Opens the device behind a duplicated `cmd_fd`.
pub unsafe extern "C" fn ibv_import_device(_cmd_fd: c_int) -> *mut ibv_context {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Takes over a protection domain.
pub unsafe extern "C" fn ibv_import_pd(_context: *mut ibv_context, _pd_handle: u32) -> *mut ibv_pd {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Gives it back.
pub unsafe extern "C" fn ibv_unimport_pd(_pd: *mut ibv_pd) {} // PHASE 2

/// Takes over a memory region.
pub unsafe extern "C" fn ibv_import_mr(_pd: *mut ibv_pd, _mr_handle: u32) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Gives it back.
pub unsafe extern "C" fn ibv_unimport_mr(_mr: *mut ibv_mr) {} // PHASE 2

/// Takes over device memory.
pub unsafe extern "C" fn ibv_import_dm(_context: *mut ibv_context, _dm_handle: u32) -> *mut ibv_dm {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Gives it back.
pub unsafe extern "C" fn ibv_unimport_dm(_dm: *mut ibv_dm) {} // PHASE 2
