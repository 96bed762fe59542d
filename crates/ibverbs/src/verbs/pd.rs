//! Protection domains, thread domains and parent domains.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Allocates a protection domain.
pub unsafe extern "C" fn ibv_alloc_pd(_context: *mut ibv_context) -> *mut ibv_pd {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Frees a protection domain or a parent domain.
pub unsafe extern "C" fn ibv_dealloc_pd(_pd: *mut ibv_pd) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `alloc_td`.
pub unsafe extern "C" fn alloc_td(
    _context: *mut ibv_context,
    _init_attr: *mut ibv_td_init_attr,
) -> *mut ibv_td {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Slot `dealloc_td`.
pub unsafe extern "C" fn dealloc_td(_td: *mut ibv_td) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Slot `alloc_parent_domain`.
pub unsafe extern "C" fn alloc_parent_domain(
    _context: *mut ibv_context,
    _attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    errno::null(EOPNOTSUPP) // PHASE 2
}
