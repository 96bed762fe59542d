//! Fork protection. A NIC writes to physical pages and needs copy-on-write turned off; this device
//! writes through the process's own mapping, so nothing has to be done and nothing can be too late.

use core::ffi::{c_int, c_void};

use libc::size_t;

use crate::abi::*;

/// Asks for fork protection: always granted.
pub extern "C" fn ibv_fork_init() -> c_int {
    crate::verbs::check::asked_for_fork();
    0
}

/// Tells whether fork protection is on: it is not needed.
pub extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    crate::verbs::check::asked_for_fork();
    IBV_FORK_UNNEEDED
}

/// Keeps a range from being inherited: nothing to do. Private to providers.
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: size_t) -> c_int {
    0
}

/// Undoes [`ibv_dontfork_range`]: nothing to do. Private to providers.
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: size_t) -> c_int {
    0
}
