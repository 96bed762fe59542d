//! Asynchronous events of a context.

use core::ffi::c_int;

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Waits for an event, as the flags of `async_fd` say.
pub unsafe extern "C" fn ibv_get_async_event(
    _context: *mut ibv_context,
    _event: *mut ibv_async_event,
) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// Acknowledges an event, so that its object can be destroyed.
pub unsafe extern "C" fn ibv_ack_async_event(_event: *mut ibv_async_event) {} // PHASE 2
