//! Event channels.

use core::ffi::c_int;

use crate::abi::cma::rdma_event_channel;
use crate::command;
use crate::device;
use crate::error::{ErrnoResult, or_null};
use crate::live::Live;

/// All existing channels.
static CHANNELS: Live<rdma_event_channel> = Live::new();

/// Creates a channel.
pub fn create() -> ErrnoResult<*mut rdma_event_channel> {
    device::require()?;
    crate::error::ready()?;
    let fd = command::open()?;
    Ok(CHANNELS.enter(rdma_event_channel { fd }))
}

/// The descriptor of a channel; EINVAL if the channel does not exist.
pub(crate) fn fd(channel: *mut rdma_event_channel) -> ErrnoResult<c_int> {
    CHANNELS.check(channel)?;
    // SAFETY: the channel exists, and its memory stays valid for a while after its end.
    Ok(unsafe { (*channel).fd })
}

/// `rdma_create_event_channel`: null with `errno` set on failure; ENODEV if there is no device.
pub extern "C" fn rdma_create_event_channel() -> *mut rdma_event_channel {
    or_null(create())
}

/// `rdma_destroy_event_channel`. The program has destroyed or migrated the ids of the channel
/// before.
pub unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
    if let Err(why) = CHANNELS.claim(channel) {
        if !channel.is_null() {
            why.set();
        }
        return;
    }
    // SAFETY: `claim` succeeded, so the channel is ours.
    unsafe {
        command::close((*channel).fd);
        CHANNELS.rest(channel);
    }
}
