//! The handles by which the program knows a queue pair: one or several.
use crate::abi::*;
use crate::handles::{FileId, Origin, Reserved};
use crate::objects::QpObj;
use crate::verbs::observers::call::Event;
use crate::verbs::observers::list::tell;
use crate::verbs::observers::table;
use crate::verbs::{files, wr_api};
use adverb_check::Kind;
use adverb_device::Qp;
use adverb_device::engine::QpType;
use adverb_sync::lock_api::RawMutex as _;
use adverb_sync::{Mutex, RawMutex};
use core::cell::UnsafeCell;
use std::sync::Arc;

/// A handle of a queue pair that can have several handles.
struct Opened {
    /// The address of the queue pair.
    qp: usize,
    handle: usize,
}

/// Events name the oldest handle that is alive. That is the handle of the context the events come
/// from, as long as it exists.
static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

/// Gives a queue pair to the program.
pub fn enter(
    place: Reserved<QpObj>,
    mut base: ibv_qp,
    file: FileId,
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
        if !opened.iter().any(|opened| opened.qp == shared) {
            qp.set_cookie(handle);
        }
        opened.push(Opened { qp: shared, handle });
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
pub fn leave(handle: *mut ibv_qp, qp: &Arc<Qp>) {
    if qp.qp_type() != QpType::XrcRecv {
        return;
    }
    let mut opened = OPENED.lock();
    opened.retain(|other| other.handle != handle as usize);
    let place = Arc::as_ptr(qp) as usize;
    if qp.cookie() == handle as usize
        && let Some(other) = opened.iter().find(|other| other.qp == place)
    {
        qp.set_cookie(other.handle);
    }
}
