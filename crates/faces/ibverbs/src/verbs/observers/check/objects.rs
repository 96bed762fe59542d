//! Creation, changes and destruction of objects, and events.
use super::Check;
use super::picture::source_of;
use super::report::{place, way};
use crate::abi::*;
use crate::handles::hot;
use crate::verbs::observers::call::Event;
use adverb_check::{
    CM_EVENTS, CodeAddress, Ledger, Made, NOTHING_WITHIN, QueuePair, Region, Source,
};
use adverb_device::engine::attr::{Cut, Narrow};
use adverb_device::engine::{Access, AttrMask, QpAttr, QpState};
use adverb_device::{Cq, Element, Mr, Qp};
use std::time::{Duration, Instant};

/// Time for a thread to acknowledge events while another thread destroys their object.
const ACK_WAIT: Duration = Duration::from_millis(500);

impl Check {
    /// Handles events outside of calls.
    pub(super) fn told_of(&'static self, event: &mut Event<'_>) {
        match event {
            Event::Made(kind, handle) => {
                // Not before the device is open: with a second thread, the device's first
                // descriptors take the kernel 20 ms.
                self.see_to_examiner();
                let (place, way) = way();
                self.tell(|ledger| ledger.made(*kind, *handle, Made { place, way }));
            }
            Event::Ended(kind, handle) => self.tell(|ledger| ledger.ended(*kind, *handle)),
            Event::Cq { cq, ignores_overrun } => self.cq(cq, *ignores_overrun),
            Event::CqDestroyed(number) => self.tell(|ledger| ledger.cq_destroyed(*number)),
            Event::SrqDestroyed(srq) => self.tell(|ledger| ledger.srq_destroyed(srq.number())),
            Event::QueuePair { qp, send_cq, recv_cq, srq } => {
                self.queue_pair(qp, *send_cq, *recv_cq, *srq);
            }
            Event::Modified { qp, attr, mask } => self.modified(qp, attr, *mask),
            // Completions of this queue pair may never be polled.
            Event::Counted(qp) => {
                let cap = qp.query().cap;
                self.tell(|ledger| {
                    ledger.queue_pair_resized(qp.number(), 0, cap.max_recv_wr as usize)
                });
            }
            Event::QueuePairDestroyed(number) => {
                self.tell(|ledger| ledger.queue_pair_destroyed(*number))
            }
            Event::Cut(cuts) => self.cut(cuts),
            Event::Registered { mr, memory, iova, access } => {
                self.registered(mr, *memory, *iova, *access);
            }
            Event::Deregistering(mr) => {
                let at = place();
                self.tell(|ledger| ledger.deregistering(mr.key(), at));
            }
            Event::Deregistered(mr) => self.tell(|ledger| ledger.deregistered(mr.key())),
            Event::EventsAcknowledged(cq, n) => {
                let (source, at) = (Source::Completion(cq.number()), place());
                self.tell(|ledger| ledger.events_acknowledged(source, (*n).into(), at));
            }
            Event::AsyncEventAcknowledged(element) => {
                if let Some(source) = source_of(element) {
                    let at = place();
                    self.tell(|ledger| ledger.events_acknowledged(source, 1, at));
                }
            }
            Event::Destroying(sources) => self.destroying(sources),
            Event::Connecting { id, queue_pair } => {
                self.tell(|ledger| ledger.connecting(*id, *queue_pair));
            }
            Event::ConnectionEvent { id, event, status } => {
                let at = place();
                self.tell(|ledger| ledger.connection_event(*id, *event, *status, at));
            }
            Event::ConnectionEventTaken { owner, event, kind } => {
                let at = place();
                self.tell(|ledger| ledger.connection_event_taken(*owner, *event, *kind, at));
                let name = CM_EVENTS.get(*kind as usize).unwrap_or(&"an event");
                self.happened("rdma_get_cm_event", None, at, *name);
            }
            Event::ConnectionEventAcknowledged(event) => {
                self.tell(|ledger| ledger.connection_event_acknowledged(*event));
                self.happened("rdma_ack_cm_event", None, place(), "");
            }
            Event::ConnectionEventsAwaited { owner, call } => {
                self.wait_for_acknowledgement(|ledger| ledger.unacknowledged_of_connection(*owner));
                let at = place();
                self.tell(|ledger| ledger.connection_not_acknowledged(*owner, call, at));
            }
            Event::ConnectionFailed { name, error } => {
                let (at, why) = (place(), format!("{} ({error:?})", error.desc()));
                self.tell(|ledger| ledger.called(name, Some(why), at));
            }
            Event::Chosen { call, choice, place } => {
                self.happened("the hunt's choice", None, *place, choice.words(*call));
            }
            Event::WaitOver { call, limit } => {
                self.happened(*call, None, place(), format!("{NOTHING_WITHIN}{limit:?}"));
            }
            Event::Fork(moment) => self.fork(*moment),
            Event::Exit(status) => **status = self.end(**status),
        }
    }

    fn cq(&self, cq: &Cq, ignores_overrun: bool) {
        let entries = if ignores_overrun { usize::MAX } else { cq.capacity() as usize };
        let place = place();
        self.tell(|ledger| ledger.cq(cq.number(), entries, place));
    }

    fn queue_pair(&self, qp: &Qp, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq) {
        let number = |cq: *mut ibv_cq| hot(cq).ok().map(|obj| obj.cq.number());
        let cap = qp.query().cap;
        let of = QueuePair {
            number: qp.number(),
            send_cq: number(send_cq),
            recv_cq: number(recv_cq).filter(|_| srq.is_null()),
            max_send: cap.max_send_wr as usize,
            max_recv: cap.max_recv_wr as usize,
        };
        let at = place();
        self.tell(|ledger| ledger.queue_pair(of, at));
    }

    fn modified(&self, qp: &Qp, attr: &QpAttr, mask: AttrMask) {
        let (number, at) = (qp.number(), place());
        self.tell(|ledger| {
            ledger.queue_pair_moved(number, at);
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
                ledger.queue_pair_resized(
                    number,
                    cap.max_send_wr as usize,
                    cap.max_recv_wr as usize,
                );
            }
        });
    }

    /// Values of a call lost their high bits.
    fn cut(&self, cuts: &[Cut]) {
        let at = place();
        let words: Vec<_> = cuts.iter().map(ToString::to_string).collect();
        self.tell(|ledger| ledger.value_cut(&words.join("; "), at));
    }

    fn registered(&self, mr: &Mr, memory: Option<(u64, u64)>, iova: u64, access: Access) {
        let at = place();
        // For other memory the bounds are not checked.
        let (start, length) = match memory {
            Some((_, length)) if access.contains(Access::ZERO_BASED) => (0, length),
            Some((_, length)) => (iova, length),
            None => (0, u64::MAX),
        };
        let region =
            Region { lkey: mr.key(), start, length, memory: memory.map(|(at, _)| at), place: at };
        self.tell(|ledger| ledger.registered(region));
    }

    /// A completion event was taken at `at`.
    pub(super) fn event_taken(&self, cq: &Cq, at: CodeAddress) {
        self.tell(|ledger| ledger.event_taken(Source::Completion(cq.number()), at));
    }

    /// An asynchronous event was taken.
    pub(super) fn async_event_taken(&self, element: &Element) {
        if let Some(source) = source_of(element) {
            let at = place();
            self.tell(|ledger| ledger.event_taken(source, at));
        }
    }

    /// An object is about to be destroyed. The call will wait for the acknowledgement of its
    /// events.
    fn destroying(&self, sources: &[Source]) {
        for source in sources {
            self.wait_for_acknowledgement(|ledger| ledger.unacknowledged(*source));
            let at = place();
            self.tell(|ledger| ledger.not_acknowledged(*source, at));
        }
    }

    /// Gives other threads time to acknowledge events.
    fn wait_for_acknowledgement(&self, open: impl Fn(&Ledger) -> u64) {
        let end = Instant::now() + ACK_WAIT;
        while self.tell(|ledger| open(ledger)) > 0 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
