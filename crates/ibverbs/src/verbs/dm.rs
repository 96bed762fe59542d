//! Device memory.

use core::ffi::{c_int, c_uint, c_void};

use libc::{EOPNOTSUPP, size_t};

use crate::abi::*;
use crate::errno;

/// Slot `alloc_dm`.
pub unsafe extern "C" fn alloc_dm(_context: *mut ibv_context, _attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Slot `free_dm`.
pub unsafe extern "C" fn free_dm(_dm: *mut ibv_dm) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `reg_dm_mr`.
pub unsafe extern "C" fn reg_dm_mr(
    _pd: *mut ibv_pd,
    _dm: *mut ibv_dm,
    _dm_offset: u64,
    _length: size_t,
    _access: c_uint,
) -> *mut ibv_mr {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// A descriptor of device memory. Also slot `dm_export_dmabuf_fd`.
pub unsafe extern "C" fn ibv_dm_export_dmabuf_fd(_dm: *mut ibv_dm) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// Pointer `memcpy_to_dm` of each device memory.
pub unsafe extern "C" fn memcpy_to_dm(
    _dm: *mut ibv_dm,
    _dm_offset: u64,
    _host_addr: *const c_void,
    _length: size_t,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Pointer `memcpy_from_dm` of each device memory.
pub unsafe extern "C" fn memcpy_from_dm(
    _host_addr: *mut c_void,
    _dm: *mut ibv_dm,
    _dm_offset: u64,
    _length: size_t,
) -> c_int {
    EOPNOTSUPP // PHASE 2
}
