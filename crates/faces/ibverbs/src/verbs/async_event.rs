//! Asynchronous events of a context.
use super::caller::Caller;
use super::held::hold;
use super::observers::call::{Call, CallOutcome, Event, Taken, What};
use super::observers::list::{observe, tell};
use super::{acknowledged, failed, failed_minus_one};
use crate::abi::*;
use crate::errno;
use crate::handles::{hot, live};
use adverb_device::{Context, Element, Error};
use adverb_os::Uncancelled;
use core::ffi::c_int;

/// Waits for an event, or returns at once if the flags of `async_fd` say so.
///
/// "C-unwind", because a thread can be cancelled while it waits. Passes its return address on, like
/// `ibv_get_cq_event`.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("mov rdx, [rsp]", "jmp {get}", get = sym get_async_event);
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("mov x2, x30", "b {get}", get = sym get_async_event);
}

unsafe extern "C-unwind" fn get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
    return_address: usize,
) -> c_int {
    let observed = |device: Option<&Context>, get: &mut dyn FnMut() -> CallOutcome| {
        // SAFETY: the program's arguments, unchanged.
        let call = unsafe {
            Call::of(
                Caller { return_address, frame: 0 },
                What::AsyncEvent { context, event, device },
            )
        };
        observe(&call, get)
    };
    // While this call waits, it holds only the reference count of the device context: a thread that
    // is cancelled during the wait runs no destructor.
    let outcome = match live(context).map(|obj| obj.context.clone()) {
        Ok(device) => {
            let _uncancelled = Uncancelled::begin();
            hold(device, |device| {
                observed(Some(device), &mut || match device.next_async_event() {
                    Ok((kind, element)) => CallOutcome::event(Taken::Async(kind, element)),
                    Err(e) => CallOutcome::number(errno::minus_one(e as c_int)),
                })
            })
        }
        Err(e) => {
            observed(None, &mut || CallOutcome::number(failed_minus_one("ibv_get_async_event", &e)))
        }
    };
    if let Taken::Async(kind, element) = &outcome.taken {
        // The objects stay until the event is acknowledged, so the handles are alive.
        let element = match element {
            Element::Cq(cq) => ibv_async_event_element { cq: cq.cookie() as *mut ibv_cq },
            Element::Qp(qp) => ibv_async_event_element { qp: qp.cookie() as *mut ibv_qp },
            Element::Srq(srq) => ibv_async_event_element { srq: srq.cookie() as *mut ibv_srq },
            Element::Port(port) => ibv_async_event_element { port_num: (*port).into() },
        };
        // SAFETY: the program passes a place for the event.
        unsafe { event.write(ibv_async_event { element, event_type: *kind as u32 }) };
    }
    outcome.code()
}

/// Acknowledges an event. Its object can then be destroyed.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: the program's event.
    if let Err(e) = unsafe { ack(&*event) } {
        failed("ibv_ack_async_event", &e);
    }
}

/// # Safety
/// The event's type says which field of the element is valid.
unsafe fn ack(event: &ibv_async_event) -> Result<(), Error> {
    match event.event_type {
        IBV_EVENT_CQ_ERR => {
            // SAFETY: the caller's promise.
            let cq = unsafe { event.element.cq };
            let obj = hot(cq)?;
            // SAFETY: a visible field of a live handle.
            unsafe { acknowledged(&raw mut (*cq).async_events_completed, 1) };
            acknowledge(obj.cq.context(), &Element::Cq(obj.cq.clone()));
        }
        IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
            // SAFETY: the caller's promise.
            let srq = unsafe { event.element.srq };
            let obj = hot(srq)?;
            // SAFETY: a visible field of a live handle.
            unsafe { acknowledged(&raw mut (*srq).events_completed, 1) };
            acknowledge(obj.srq.pd().context(), &Element::Srq(obj.srq.clone()));
        }
        IBV_EVENT_QP_FATAL
        | IBV_EVENT_QP_REQ_ERR
        | IBV_EVENT_QP_ACCESS_ERR
        | IBV_EVENT_COMM_EST
        | IBV_EVENT_SQ_DRAINED
        | IBV_EVENT_PATH_MIG
        | IBV_EVENT_PATH_MIG_ERR
        | IBV_EVENT_QP_LAST_WQE_REACHED => {
            // SAFETY: the caller's promise.
            let qp = unsafe { event.element.qp };
            let obj = hot(qp)?;
            // SAFETY: a visible field of a live handle.
            unsafe { acknowledged(&raw mut (*qp).events_completed, 1) };
            acknowledge(obj.qp.context(), &Element::Qp(obj.qp.clone()));
        }
        _ => {}
    }
    Ok(())
}

fn acknowledge(context: &Context, element: &Element) {
    tell(Event::AsyncEventAcknowledged(element));
    context.ack_async_event(element);
}
