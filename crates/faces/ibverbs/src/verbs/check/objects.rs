//! What is made, changed and destroyed, and events. Called by everybody; in a process that is not
//! checked each is one look at a word.
use super::report::way;
use super::{check, place};
use crate::abi::*;
use crate::handles::hot;
use adverb_check::{Kind, Made, Place, QueuePair, Region, Source};
use adverb_device::engine::attr::{Cut, Narrow};
use adverb_device::engine::{Access, AttrMask, QpAttr, QpState};
use adverb_device::{Cq, Element, Mr, Qp, Srq};
use std::time::{Duration, Instant};

/// A thread that acknowledges events while another destroys their object is given so long.
const ACK_WAIT: Duration = Duration::from_millis(500);

/// An object was made.
pub fn made<T>(kind: Kind, handle: *mut T) {
    if let Some(check) = check() {
        let (place, way) = way();
        check.tell(|ledger| ledger.made(kind, handle as usize, Made { place, way }));
    }
}

/// An object is gone.
pub fn ended<T>(kind: Kind, handle: *mut T) {
    if let Some(check) = check() {
        check.tell(|ledger| ledger.ended(kind, handle as usize));
    }
}

/// A CQ was made, or has another size.
pub fn cq(cq: &Cq, ignores_overrun: bool) {
    if let Some(check) = check() {
        let entries = if ignores_overrun { usize::MAX } else { cq.capacity() as usize };
        let place = place();
        check.tell(|ledger| ledger.cq(cq.number(), entries, place));
    }
}

/// A CQ is gone.
pub fn cq_gone(number: u32) {
    if let Some(check) = check() {
        check.tell(|ledger| ledger.cq_gone(number));
    }
}

/// A shared receive queue is gone.
pub fn srq_gone(srq: &Srq) {
    if let Some(check) = check() {
        check.tell(|ledger| ledger.srq_gone(srq.number()));
    }
}

/// A queue pair was made, with these CQs.
pub fn queue_pair(qp: &Qp, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq) {
    let Some(check) = check() else { return };
    let number = |cq: *mut ibv_cq| hot(cq).ok().map(|obj| obj.cq.number());
    let cap = qp.query().cap;
    let of = QueuePair {
        number: qp.number(),
        send_cq: number(send_cq),
        recv_cq: number(recv_cq).filter(|_| srq.is_null()),
        max_send: cap.max_send_wr as usize,
        max_recv: cap.max_recv_wr as usize,
    };
    check.tell(|ledger| ledger.queue_pair(of));
}

/// A queue pair was modified.
pub fn modified(qp: &Qp, attr: &QpAttr, mask: AttrMask) {
    let Some(check) = check() else { return };
    let (number, at) = (qp.number(), place());
    check.tell(|ledger| {
        match attr.state {
            QpState::Reset if mask.contains(AttrMask::STATE) => ledger.queue_pair_reset(number),
            QpState::Err if mask.contains(AttrMask::STATE) => ledger.queue_pair_stopped(number),
            _ => {}
        }
        if mask.contains(AttrMask::MIN_RNR_TIMER) {
            ledger.rnr_timer(number, Narrow::MinRnrTimer.keeps(attr.min_rnr_timer), at);
        }
        if mask.contains(AttrMask::CAP) {
            let cap = attr.cap;
            ledger.queue_pair_resized(number, cap.max_send_wr as usize, cap.max_recv_wr as usize);
        }
    });
}

/// Values of a call lost their high bits.
pub(super) fn cut(cuts: &[Cut]) {
    if let Some(check) = check() {
        let at = place();
        let words: Vec<_> = cuts.iter().map(ToString::to_string).collect();
        check.tell(|ledger| ledger.value_cut(&words.join("; "), at));
    }
}

/// The completions of a queue pair are counted: it may have none that are polled.
pub fn counted(qp: &Qp) {
    if let Some(check) = check() {
        let cap = qp.query().cap;
        check.tell(|ledger| ledger.queue_pair_resized(qp.number(), 0, cap.max_recv_wr as usize));
    }
}

/// A queue pair is gone.
pub fn queue_pair_gone(number: u32) {
    if let Some(check) = check() {
        check.tell(|ledger| ledger.queue_pair_gone(number));
    }
}

/// A region was registered: memory of the program's at `memory`, if it is that.
pub fn registered(mr: &Mr, memory: Option<(u64, u64)>, iova: u64, access: Access) {
    let Some(check) = check() else { return };
    let at = place();
    // Of other memory the bounds are not looked at.
    let (start, length) = match memory {
        Some((_, length)) if access.contains(Access::ZERO_BASED) => (0, length),
        Some((_, length)) => (iova, length),
        None => (0, u64::MAX),
    };
    let region = Region { lkey: mr.key(), start, length, memory: memory.map(|(at, _)| at), place: at };
    check.tell(|ledger| ledger.registered(region));
}

/// A region is about to be deregistered.
pub fn deregistering(mr: &Mr) {
    if let Some(check) = check() {
        let at = place();
        check.tell(|ledger| ledger.deregistering(mr.key(), at));
    }
}

/// A region is gone.
pub fn deregistered(mr: &Mr) {
    if let Some(check) = check() {
        check.tell(|ledger| ledger.deregistered(mr.key()));
    }
}

/// A completion event was taken at `at`.
pub fn event_taken(cq: &Cq, at: Place) {
    if let Some(check) = check() {
        check.tell(|ledger| ledger.event_taken(Source::Completion(cq.number()), at));
    }
}

/// Completion events are acknowledged.
pub fn events_acknowledged(cq: &Cq, n: u32) {
    if let Some(check) = check() {
        let at = place();
        check.tell(|ledger| ledger.events_acknowledged(Source::Completion(cq.number()), n.into(), at));
    }
}

fn source_of(element: &Element) -> Option<Source> {
    Some(match element {
        Element::Cq(cq) => Source::Cq(cq.number()),
        Element::Qp(qp) => Source::QueuePair(qp.number()),
        Element::Srq(srq) => Source::Srq(srq.number()),
        Element::Port(_) => return None,
    })
}

/// An asynchronous event was taken.
pub fn async_event_taken(element: &Element) {
    if let (Some(check), Some(source)) = (check(), source_of(element)) {
        let at = place();
        check.tell(|ledger| ledger.event_taken(source, at));
    }
}

/// An asynchronous event is acknowledged.
pub fn async_event_acknowledged(element: &Element) {
    if let (Some(check), Some(source)) = (check(), source_of(element)) {
        let at = place();
        check.tell(|ledger| ledger.events_acknowledged(source, 1, at));
    }
}

/// An object is about to be destroyed: the call will wait for its events.
pub fn destroying(sources: &[Source]) {
    let Some(check) = check() else { return };
    let end = Instant::now() + ACK_WAIT;
    for source in sources {
        while check.tell(|ledger| ledger.unacknowledged(*source)) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        if check.tell(|ledger| ledger.unacknowledged(*source)) > 0 {
            let at = place();
            check.tell(|ledger| ledger.not_acknowledged(*source, at));
        }
    }
}
