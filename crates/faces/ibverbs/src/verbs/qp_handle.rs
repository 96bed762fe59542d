//! The handles by which the program knows a queue pair: one or several.
use super::observers::call::{Event, Kind};
use super::observers::list::tell;
use super::observers::table;
use super::{files, wr_api};
use crate::abi::*;
use crate::handles::{Origin, Reserved};
use crate::objects::QpObj;
use adverb_device::Qp;
use adverb_device::engine::QpType;
use adverb_sync::lock_api::RawMutex as _;
use adverb_sync::{Mutex, RawMutex};
use core::cell::UnsafeCell;
use std::sync::Arc;

/// Queue pairs that can have several handles: the address of the queue pair, and one handle, per
/// entry. Events name the oldest handle that is alive. That is the handle of the context the events
/// come from, as long as it exists.
static OPENED: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());

/// Gives a queue pair to the program.
pub(super) fn enter(
    place: Reserved<QpObj>,
    mut base: ibv_qp,
    file: usize,
    qp: Arc<Qp>,
    extended: bool,
    custom: Option<crate::objects::CustomMemory>,
) -> *mut ibv_qp {
    base.handle = files::new_handle();
    base.qp_num = qp.number();
    base.state = qp.state() as u32;
    base.mutex = libc::PTHREAD_MUTEX_INITIALIZER;
    base.cond = libc::PTHREAD_COND_INITIALIZER;
    let origin = Origin { context: base.context, file, handle: base.handle };
    let mut c = ibv_qp_ex::zeroed();
    c.qp_base = base;
    wr_api::extend(&mut c);
    table::replace_qp(&mut c);
    // Events may name the queue pair as soon as a thread can use it.
    let handle = place.handle() as usize;
    if qp.qp_type() == QpType::XrcRecv {
        let mut opened = OPENED.lock();
        let shared = Arc::as_ptr(&qp) as usize;
        if !opened.iter().any(|(qp, _)| *qp == shared) {
            qp.set_cookie(handle);
        }
        opened.push((shared, handle));
    } else {
        qp.set_cookie(handle);
    }
    let inner =
        QpObj { qp, extended, wr_lock: RawMutex::INIT, builder: UnsafeCell::default(), custom };
    let ibv_qp { send_cq, recv_cq, srq, .. } = c.qp_base;
    tell(Event::QueuePair { qp: &inner.qp, send_cq, recv_cq, srq });
    let handle = place.fill(c, inner, origin).cast();
    tell(Event::Made(Kind::QueuePair, handle as usize));
    handle
}

/// From here on, events do not name this handle, if its queue pair has another one.
pub(super) fn leave(handle: *mut ibv_qp, qp: &Arc<Qp>) {
    if qp.qp_type() != QpType::XrcRecv {
        return;
    }
    let mut opened = OPENED.lock();
    opened.retain(|(_, other)| *other != handle as usize);
    let place = Arc::as_ptr(qp) as usize;
    if qp.cookie() == handle as usize
        && let Some((_, other)) = opened.iter().find(|(qp, _)| *qp == place)
    {
        qp.set_cookie(*other);
    }
}
