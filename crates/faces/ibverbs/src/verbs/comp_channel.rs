//! Completion channels and their events.
use super::caller::Caller;
use super::held::hold;
use super::observers::call::{Call, CallOutcome, Event, Taken, What};
use super::observers::list::{observe, tell};
use super::{acknowledged, end, failed, failed_minus_one, failed_null};
use crate::abi::*;
use crate::errno;
use crate::handles::{Origin, hot, live, reserve};
use adverb_check::Kind;
use adverb_device::{CompChannel, Error};
use adverb_os::Uncancelled;
use core::ffi::{c_int, c_uint, c_void};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

/// Creates a completion channel.
pub unsafe extern "C" fn ibv_create_comp_channel(
    context: *mut ibv_context,
) -> *mut ibv_comp_channel {
    let make = || {
        let obj = live(context)?;
        let place = reserve()?;
        let channel = CompChannel::new(&obj.context)?;
        let visible = ibv_comp_channel { context, fd: channel.as_fd().as_raw_fd(), refcnt: 0 };
        let origin = Origin { context, file: obj.file, handle: 0 };
        let handle = place.fill(visible, channel, origin);
        tell(Event::Made(Kind::Channel, handle as usize));
        Ok(handle)
    };
    make().unwrap_or_else(|e: Error| failed_null("ibv_create_comp_channel", &e))
}

/// Destroys a completion channel; EBUSY while CQs use it (CHN-6).
pub unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
    end("ibv_destroy_comp_channel", channel, |obj| {
        obj.destroy()?;
        tell(Event::Ended(Kind::Channel, channel as usize));
        Ok(())
    })
}

/// Waits for an event and returns its CQ (CHN-1, CHN-2, CHN-7).
///
/// "C-unwind", because a thread can be cancelled while it waits. Passes its return address on, like
/// `req_notify_cq`.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rcx, [rsp]", "jmp {get}", get = sym get_cq_event);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x3, x30", "b {get}", get = sym get_cq_event);
}

unsafe extern "C-unwind" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
    return_address: usize,
) -> c_int {
    let observed = |of: Option<&CompChannel>, get: &mut dyn FnMut() -> CallOutcome| {
        // SAFETY: the program's arguments, unchanged.
        let call = unsafe {
            Call::of(
                Caller { return_address, frame: 0 },
                What::CqEvent { handle: channel, channel: of },
            )
        };
        observe(&call, get)
    };
    // While this call waits, it holds only the reference count of the channel: a thread that is
    // cancelled during the wait runs no destructor.
    let outcome = match live(channel).map(|obj| Arc::clone(&obj)) {
        Ok(channel) => {
            let _uncancelled = Uncancelled::begin();
            hold(channel, |channel| {
                observed(Some(channel), &mut || match channel.next_event(None) {
                    Ok(event) => CallOutcome::event(Taken::Completion(event)),
                    Err(e) => CallOutcome::number(errno::minus_one(e as c_int)),
                })
            })
        }
        Err(e) => {
            observed(None, &mut || CallOutcome::number(failed_minus_one("ibv_get_cq_event", &e)))
        }
    };
    if let Taken::Completion(event) = &outcome.taken {
        let handle = event.cookie() as *mut ibv_cq;
        // SAFETY: memory of a handle that was given to the program stays readable for ever, and the
        // CQ stays until this event is acknowledged (CHN-4). The program passes two places.
        unsafe {
            cq.write(handle);
            cq_context.write((*handle).cq_context);
        }
    }
    outcome.code()
}

/// Acknowledges `nevents` events at once (CHN-4).
pub unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    match hot(cq) {
        Ok(obj) => {
            // SAFETY: a visible field of a live handle.
            unsafe { acknowledged(&raw mut (*cq).comp_events_completed, nevents) };
            tell(Event::EventsAcknowledged(&obj.cq, nevents));
            obj.cq.ack_events(nevents);
        }
        Err(e) => {
            failed("ibv_ack_cq_events", &e);
        }
    }
}
