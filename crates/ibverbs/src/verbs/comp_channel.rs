//! Completion channels and their events.
use super::held::hold;
use super::{failed, failed_null};
use crate::abi::*;
use crate::errno;
use crate::objects::{ChannelObj, ContextObj, CqObj, Object};
use adverb_device::CompChannel;
use adverb_link::Uncancelled;
use core::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// Creates a completion channel.
pub unsafe extern "C" fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
    // SAFETY: the program's live context.
    let obj = unsafe { ContextObj::behind(context) };
    match CompChannel::new(&obj.context) {
        Ok(channel) => {
            let c = ibv_comp_channel { context, fd: channel.raw_fd(), refcnt: 0 };
            ChannelObj { c, channel }.into_handle()
        }
        Err(e) => failed_null("ibv_create_comp_channel", &e),
    }
}

/// Destroys a completion channel; EBUSY while CQs use it (CHN-6).
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    // SAFETY: the program's live channel.
    let obj: &ChannelObj = unsafe { ChannelObj::behind(channel) };
    if let Err(e) = obj.channel.destroy() {
        return failed("ibv_destroy_comp_channel", &e);
    }
    // SAFETY: as above; nothing uses it any more.
    unsafe { ChannelObj::free(channel) };
    0
}

/// Waits for an event and answers its CQ (CHN-1, CHN-2, CHN-7).
///
/// "C-unwind", as a thread can be cancelled while it waits.
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the program's live channel.
    let obj: &ChannelObj = unsafe { ChannelObj::behind(channel) };
    let _uncancelled = Uncancelled::begin();
    match hold(&obj.channel, |channel| channel.next_event(None)) {
        Ok(event) => {
            let handle = event.cookie() as *mut ibv_cq;
            // SAFETY: the CQ waits for the acknowledgement of this event before it goes (CHN-4), so the handle lives;
            // the program passes two places.
            unsafe {
                cq.write(handle);
                cq_context.write((*handle).cq_context);
            }
            0
        }
        Err(e) => errno::minus_one(e as c_int),
    }
}

/// Acknowledges `nevents` events at once (CHN-4).
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: the program's handle, checked.
    if let Some(obj) = unsafe { CqObj::living(cq) } {
        // A thread that waits to destroy the queue goes on before this call has ended.
        let cq = Arc::clone(&obj.cq);
        cq.ack_events(nevents);
    }
}
