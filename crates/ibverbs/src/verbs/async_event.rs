//! Asynchronous events of a context.
use super::held::hold;
use crate::abi::*;
use crate::errno;
use crate::objects::{ContextObj, CqObj, Object, QpObj, SrqObj};
use adverb_device::Element;
use adverb_link::Uncancelled;
use core::ffi::c_int;

/// Waits for an event, as the flags of `async_fd` say.
/// "C-unwind", as a thread can be cancelled while it waits.
pub unsafe extern "C-unwind" fn ibv_get_async_event(
    context: *mut ibv_context,
    event: *mut ibv_async_event,
) -> c_int {
    // SAFETY: the program's live context.
    let obj = unsafe { ContextObj::behind(context) };
    let _uncancelled = Uncancelled::begin();
    match hold(&obj.context, |context| context.next_async_event()) {
        Ok((kind, element)) => {
            // The objects wait for the acknowledgement before they go, so the handles live.
            let element = match element {
                Element::Cq(cq) => ibv_async_event_element { cq: cq.cookie() as *mut ibv_cq },
                Element::Qp(qp) => ibv_async_event_element { qp: qp.cookie() as *mut ibv_qp },
                Element::Srq(srq) => ibv_async_event_element { srq: srq.cookie() as *mut ibv_srq },
                Element::Port(port) => ibv_async_event_element { port_num: port.into() },
            };
            // SAFETY: the program's place for the event.
            unsafe { event.write(ibv_async_event { element, event_type: kind as u32 }) };
            0
        }
        Err(e) => errno::minus_one(e as c_int),
    }
}

/// Acknowledges an event, so that its object can be destroyed.
pub unsafe extern "C" fn ibv_ack_async_event(event: *mut ibv_async_event) {
    // SAFETY: an event of `ibv_get_async_event`: its type says which element it has, and that object lives until this.
    unsafe {
        let element = (*event).element;
        match (*event).event_type {
            IBV_EVENT_CQ_ERR => {
                if let Some(obj) = CqObj::living(element.cq) {
                    obj.cq.context().ack_async_event(&Element::Cq((*obj.cq).clone()));
                }
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED if !element.srq.is_null() => {
                let obj: &SrqObj = SrqObj::behind(element.srq);
                obj.srq.pd().context().ack_async_event(&Element::Srq(obj.srq.clone()));
            }
            IBV_EVENT_QP_FATAL
            | IBV_EVENT_QP_REQ_ERR
            | IBV_EVENT_QP_ACCESS_ERR
            | IBV_EVENT_COMM_EST
            | IBV_EVENT_SQ_DRAINED
            | IBV_EVENT_PATH_MIG
            | IBV_EVENT_PATH_MIG_ERR
            | IBV_EVENT_QP_LAST_WQE_REACHED
                if !element.qp.is_null() =>
            {
                let obj: &QpObj = QpObj::behind(element.qp);
                obj.qp.context().ack_async_event(&Element::Qp(obj.qp.clone()));
            }
            _ => {}
        }
    }
}
