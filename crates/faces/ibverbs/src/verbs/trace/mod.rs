//! `adverb run --trace`: what the program calls goes to the part of this process
//! ([`adverb_trace`]).
//!
//! Exported functions are told of by their trampolines (`calls`), those of the data path by
//! functions that stand in a context's tables only in a traced process ([`super::traced`]). Here is
//! what calls of the control path tell of their objects; elsewhere these look at one word.
mod calls;
mod polls;

pub use calls::tell;
pub use polls::{empty_poll, empty_polls_end};

use super::check;
use crate::abi::*;
use crate::handles::hot;
use adverb_device::engine::{AttrMask, QpAttr};
use adverb_device::{Cq, Qp};
use adverb_sync::{Mutex, MutexGuard};
use adverb_trace::{Record, now, on, record, thread};
use core::ffi::c_int;
use std::path::Path;
use std::sync::{Once, OnceLock};

/// Calls are told of from the first one on, so the library looks when it is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = init;

/// Looks whether the process is to be traced.
pub extern "C" fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Some(directory) = adverb_link::chosen(adverb_trace::VARIABLE).filter(|v| !v.is_empty()) {
            adverb_trace::begin(Path::new(&directory));
            check::at_end(adverb_trace::finish);
            // SAFETY: a function of a library that is never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(after_fork_child)) };
        }
    });
}

unsafe extern "C" fn after_fork_child() {
    adverb_trace::forked();
    for lock in POSTING.iter().filter(|lock| lock.is_locked()) {
        // SAFETY: whichever thread had it is not in the child.
        unsafe { lock.force_unlock() };
    }
}

/// Locks under which a queue is posted to, so that the trace has requests in their order.
static POSTING: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

/// Keeps other posts to a queue away.
pub fn alone(number: u32) -> MutexGuard<'static, ()> {
    POSTING[number as usize % POSTING.len()].lock()
}

type Extend<T> = fn(&mut T);
/// What puts the calls of the data path into extended CQs and queue pairs.
static EXTEND: OnceLock<(Extend<ibv_cq_ex>, Extend<ibv_qp_ex>)> = OnceLock::new();

/// How extended CQs and queue pairs are made to tell; left by the first context.
pub fn set_extend(cq: Extend<ibv_cq_ex>, qp: Extend<ibv_qp_ex>) {
    let _ = EXTEND.set((cq, qp));
}

/// Has an extended CQ tell what is polled, if the process is traced.
pub fn extend_cq(c: &mut ibv_cq_ex) {
    if let Some((cq, _)) = EXTEND.get() {
        cq(c);
    }
}

/// Has an extended queue pair tell what is posted, if the process is traced.
pub fn extend_qp(c: &mut ibv_qp_ex) {
    if let Some((_, qp)) = EXTEND.get() {
        qp(c);
    }
}

/// The time, if the process is traced.
#[inline]
#[must_use]
pub fn begin() -> Option<u64> {
    on().then(now)
}

/// A CQ was made, or has another size.
pub fn cq(cq: &Cq) {
    if on() {
        record(&Record::Cq { t: now(), cq: cq.number(), entries: cq.capacity() });
    }
}

/// A CQ is gone.
pub fn cq_gone(number: u32) {
    if on() {
        record(&Record::CqGone { t: now(), cq: number });
    }
}

/// A queue pair was made, with these CQs.
pub fn queue_pair(qp: &Qp, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq) {
    if !on() {
        return;
    }
    let number = |cq: *mut ibv_cq| hot(cq).ok().map(|obj| obj.cq.number());
    record(&Record::QueuePair {
        t: now(),
        qp: qp.number(),
        transport: format!("{:?}", qp.qp_type()),
        send_cq: number(send_cq),
        recv_cq: number(recv_cq),
        srq: hot(srq).ok().map(|obj| obj.srq.number()),
    });
}

/// A queue pair is gone.
pub fn queue_pair_gone(number: u32) {
    if on() {
        record(&Record::QueuePairGone { t: now(), qp: number });
    }
}

/// A queue pair was modified.
pub fn modified(qp: &Qp, attr: &QpAttr, mask: AttrMask) {
    if !on() {
        return;
    }
    let of = |bit: AttrMask, value: u32| mask.contains(bit).then_some(value);
    record(&Record::Modified {
        t: now(),
        qp: qp.number(),
        state: mask.contains(AttrMask::STATE).then(|| format!("{:?}", attr.state)),
        mtu: of(AttrMask::PATH_MTU, attr.path_mtu.bytes() as u32),
        dest: of(AttrMask::DEST_QPN, attr.dest_qpn),
        sq_psn: of(AttrMask::SQ_PSN, attr.sq_psn),
        rq_psn: of(AttrMask::RQ_PSN, attr.rq_psn),
    });
}

/// An event was taken of a CQ, or the wait for one failed with an errno.
pub fn event_taken(began: Option<u64>, taken: Result<&Cq, c_int>) {
    let Some(t) = began else { return };
    empty_polls_end();
    let call = "ibv_get_cq_event".into();
    let (cq, errno) = (taken.ok().map(Cq::number), taken.err().unwrap_or(0));
    record(&Record::Taken { t, d: now() - t, tid: thread(), call, cq, errno });
}
