//! Trace records of completion queues. In an untraced process each function only reads one word.
use adverb_engine::Completion;
use adverb_trace::{Done, Record, now, on, record, thread};

/// A completion is about to be added.
#[inline]
pub(super) fn completion(cq: u32, c: &Completion) {
    if on() {
        let (status, opcode) = (c.status as u32, c.opcode as u32);
        let of = Done { qp: c.qpn, wr_id: c.wr_id, status, opcode, bytes: c.byte_len };
        record(&Record::Completion { t: now(), tid: thread(), cq, of });
    }
}

/// An event is about to be queued.
#[inline]
pub(super) fn event(cq: u32) {
    if on() {
        record(&Record::Event { t: now(), tid: thread(), cq });
    }
}
