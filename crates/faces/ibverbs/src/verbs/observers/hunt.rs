//! `adverb hunt`, `adverb run --replay`: tells the calling places in the program to the device as
//! an adversary ([`adverb_hunt`]), and delays or refuses calls.
use super::call::{Call, CallOutcome, What};
use super::observer::{Observer, When};
use super::undefined::{current_lacks_immediate, lacks_immediate, scramble, scramble_current};
use crate::abi::*;
use crate::errno;
use crate::handles::{hot, session, this_thread};
use crate::objects::CqObj;
use crate::verbs::failed_null;
use adverb_choice::{Call as Point, Choice};
use adverb_device::engine::WcStatus;
use adverb_device::{Cq, Errno, Error, Qp};
use adverb_hunt::{self as hunt, Chosen};
use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

/// The hunt, as an entry of the list.
pub struct Hunting;

/// Is the process hunted? No code looks for a schedule before a device is used.
static BEGUN: AtomicBool = AtomicBool::new(false);

/// State of the hunt between `before` and `after` of a call.
pub enum Kept {
    Nothing,
    Poll(Arc<Cq>),
    Arm(Arc<Cq>, Chosen),
    Post(Arc<Qp>, Chosen),
    /// A call that ends with [`Chosen::after`].
    Other(Chosen),
}

impl Observer for Hunting {
    type Kept = Kept;

    fn begin(&self, when: When) {
        if when == When::Use {
            BEGUN.store(hunt::is_on(), Ordering::Relaxed);
        }
    }

    fn is_on(&self) -> bool {
        BEGUN.load(Ordering::Relaxed)
    }

    fn before(&self, call: &Call<'_>) -> Result<Kept, CallOutcome> {
        let place = call.place();
        let kept = match call.what() {
            What::Poll { cq, .. } => hot(cq).ok().map(|obj| Kept::Poll(obj.cq.clone())),
            What::Arm { cq, .. } => hot(cq).ok().map(|obj| obj.cq.clone()).and_then(|queue| {
                let chosen = hunt::arming(&queue, place)?;
                Some(Kept::Arm(queue, chosen))
            }),
            What::PostSend { qp, wr } => posting(hot(qp).ok().map(|obj| obj.qp.clone()), place)
                .map_err(|refused| CallOutcome::post(refused, wr))?,
            What::CompleteChain { qp } => posting(hot(qp).ok().map(|obj| obj.qp.clone()), place)
                .map_err(CallOutcome::number)?,
            What::PostRecv { .. } => hunt::calling(Point::Receive, place).map(Kept::Other),
            What::Named { name, .. } if registers(name) => {
                if hunt::choice(Point::Register, place) == Some(Choice::Refuse) {
                    return Err(refused_registration(name));
                }
                None
            }
            What::Named { name, args: [qp, attr, mask, ..] } if name == c"ibv_modify_qp" => {
                let (qp, attr) = (*qp as *mut ibv_qp, *attr as *const ibv_qp_attr);
                let changes_state = *mask as u32 & IBV_QP_STATE != 0 && !attr.is_null();
                // SAFETY: the program's argument, valid during the call.
                let fails = changes_state && unsafe { (*attr).qp_state } == IBV_QPS_ERR;
                if let Some(obj) = hot(qp).ok().filter(|_| fails) {
                    hunt::failing(&obj.qp, place);
                }
                None
            }
            What::CqEvent { channel: Some(channel), .. } => {
                let chosen = hunt::getting(channel, place);
                if chosen.as_ref().is_some_and(|chosen| hunt::interrupts(channel, chosen)) {
                    return Err(CallOutcome::number(errno::minus_one(libc::EINTR)));
                }
                chosen.map(Kept::Other)
            }
            What::AsyncEvent { device: Some(_), .. } => {
                hunt::calling(Point::Async, place).map(Kept::Other)
            }
            _ => None,
        };
        Ok(kept.unwrap_or(Kept::Nothing))
    }

    fn after(&self, call: &Call<'_>, outcome: &mut CallOutcome, kept: Kept) {
        let place = call.place();
        match (call.what(), kept) {
            (What::Poll { wc, .. }, Kept::Poll(queue)) => {
                // SAFETY: the program's places. The call has filled the number of places in its
                // result.
                unsafe { polled(&queue, wc, outcome.code(), place) }
            }
            (What::StartPoll { cq } | What::NextPoll { cq }, _) => {
                // SAFETY: if the poll found a completion, this thread polls.
                unsafe { polled_extended(cq, outcome.code(), place) }
            }
            (_, Kept::Arm(queue, chosen)) => hunt::armed(&queue, &chosen),
            (_, Kept::Post(queue_pair, chosen)) => {
                hunt::posted(&queue_pair, place, &chosen, outcome.code())
            }
            (_, Kept::Other(chosen)) => {
                chosen.after();
            }
            _ => {}
        }
    }
}

/// Does the function of this name register memory?
fn registers(name: &CStr) -> bool {
    let names = [
        c"ibv_reg_mr",
        c"ibv_reg_mr_iova",
        c"ibv_reg_mr_iova2",
        c"ibv_reg_mr_ex",
        c"ibv_reg_dmabuf_mr",
        c"ibv_reg_dm_mr",
        c"ibv_reg_buf_mr",
    ];
    names.contains(&name)
}

/// A registration fails, as at the limit of locked memory.
fn refused_registration(name: &CStr) -> CallOutcome {
    let why = "the hunt refuses this registration, as at the limit of locked memory";
    let error = Error::new(Errno::ENOMEM, why);
    let null = failed_null::<()>(&name.to_string_lossy(), &error);
    CallOutcome::word(null.addr() as u64)
}

/// The program is about to post. The error is the errno of a refused post.
fn posting(queue_pair: Option<Arc<Qp>>, place: usize) -> Result<Option<Kept>, c_int> {
    let Some(queue_pair) = queue_pair else { return Ok(None) };
    let chosen = hunt::posting(&queue_pair, place).map_err(|e| e as c_int)?;
    Ok(chosen.map(|chosen| Kept::Post(queue_pair, chosen)))
}

/// A poll has answered.
///
/// # Safety
/// `found` completions are at `wc`, if `found` is positive.
unsafe fn polled(queue: &Arc<Cq>, wc: *mut ibv_wc, found: c_int, place: usize) {
    let Ok(found) = usize::try_from(found) else { return };
    for i in 0..found {
        // SAFETY: the caller's promise.
        let wc = unsafe { &mut *wc.add(i) };
        if wc.status != IBV_WC_SUCCESS {
            if let Some(garbage) = hunt::garbage(queue, Point::Error, place) {
                scramble(wc, garbage);
            }
        } else if lacks_immediate(wc)
            && let Some(garbage) = hunt::garbage(queue, Point::Message, place)
        {
            wc.imm_data = garbage as u32;
        }
    }
    hunt::polled(queue, place, found);
}

/// An extended poll has answered.
///
/// # Safety
/// With result 0 this thread polls the queue and is between start and end.
unsafe fn polled_extended(cq: *mut ibv_cq_ex, result: c_int, place: usize) {
    let Some(queue) = hot(cq).ok().map(|obj| obj.cq.clone()) else { return };
    match result {
        0 => hunt::polled(&queue, place, 1),
        libc::ENOENT => return hunt::polled(&queue, place, 0),
        _ => return,
    }
    let Some(obj) = session(cq, this_thread()) else { return };
    let obj: &CqObj = &obj;
    // SAFETY: between start and end this thread is the only user.
    let Some(c) = (unsafe { (*obj.current.get()).as_mut() }) else { return };
    if c.status != WcStatus::Success {
        if let Some(garbage) = hunt::garbage(&queue, Point::Error, place) {
            scramble_current(c, garbage);
        }
    } else if current_lacks_immediate(c)
        && let Some(garbage) = hunt::garbage(&queue, Point::Message, place)
    {
        c.imm = garbage as u32;
    }
}
