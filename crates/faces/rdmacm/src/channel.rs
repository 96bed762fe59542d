//! Event channels.

use core::ffi::c_int;

use crate::abi::cma::rdma_event_channel;
use crate::command;
use crate::device;
use crate::error::{Outcome, or_null};
use crate::live::Live;

/// Those that exist.
static CHANNELS: Live<rdma_event_channel> = Live::new();

/// A new channel.
pub fn create() -> Outcome<*mut rdma_event_channel> {
    device::require()?;
    crate::error::ready()?;
    let fd = command::open()?;
    Ok(CHANNELS.enter(rdma_event_channel { fd }))
}

/// A channel's descriptor; EINVAL for a channel that does not exist.
pub(crate) fn fd(channel: *mut rdma_event_channel) -> Outcome<c_int> {
    CHANNELS.check(channel)?;
    // SAFETY: it exists, and rests for a while when it ends.
    Ok(unsafe { (*channel).fd })
}

/// `rdma_create_event_channel`: null with `errno` set on failure; ENODEV where there is no device.
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    or_null(create())
}

/// `rdma_destroy_event_channel`: its ids are destroyed or moved away before.
///
/// # Safety
/// A channel of [`rdma_create_event_channel`], not used any more.
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if let Err(why) = CHANNELS.claim(channel) {
        if !channel.is_null() {
            why.set();
        }
        return;
    }
    // SAFETY: claimed just now.
    unsafe {
        command::close((*channel).fd);
        CHANNELS.rest(channel);
    }
}
