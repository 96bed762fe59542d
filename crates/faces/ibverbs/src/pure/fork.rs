//! Fork protection. A NIC writes to physical pages, so copy-on-write must be off. This device
//! writes through the mapping of the process itself, so nothing has to be done, and no request can
//! come too late.

use core::ffi::{c_int, c_void};

use core::sync::atomic::{AtomicBool, Ordering};
use libc::size_t;

use crate::abi::*;

/// The program asked for fork protection, so it cares what its children share.
static ASKED_FOR: AtomicBool = AtomicBool::new(false);

/// Tells whether the program asked for fork protection.
pub fn is_asked_for() -> bool {
    ASKED_FOR.load(Ordering::Relaxed)
}

/// Asks for fork protection. Always granted.
pub extern "C" fn ibv_fork_init() -> c_int {
    ASKED_FOR.store(true, Ordering::Relaxed);
    0
}

/// Tells whether fork protection is on: it is not needed.
pub extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    ASKED_FOR.store(true, Ordering::Relaxed);
    IBV_FORK_UNNEEDED
}

/// Keeps a range from being inherited. Does nothing. Private to providers.
pub extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: size_t) -> c_int {
    0
}

/// Undoes [`ibv_dontfork_range`]. Does nothing. Private to providers.
pub extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: size_t) -> c_int {
    0
}
