//! Completion channels and their events.

use core::ffi::{c_int, c_uint, c_void};

use libc::EOPNOTSUPP;

use crate::abi::*;
use crate::errno;

/// Creates a completion channel.
pub unsafe extern "C" fn ibv_create_comp_channel(_context: *mut ibv_context) -> *mut ibv_comp_channel {
    errno::null(EOPNOTSUPP) // PHASE 2
}

/// Destroys a completion channel (CHN-6).
pub unsafe extern "C" fn ibv_destroy_comp_channel(_channel: *mut ibv_comp_channel) -> c_int {
    EOPNOTSUPP // PHASE 2
}

/// Waits for an event (CHN-1, CHN-2).
pub unsafe extern "C" fn ibv_get_cq_event(
    _channel: *mut ibv_comp_channel,
    _cq: *mut *mut ibv_cq,
    _cq_context: *mut *mut c_void,
) -> c_int {
    errno::minus_one(EOPNOTSUPP) // PHASE 2
}

/// Acknowledges events (CHN-4).
pub unsafe extern "C" fn ibv_ack_cq_events(_cq: *mut ibv_cq, _nevents: c_uint) {} // PHASE 2
