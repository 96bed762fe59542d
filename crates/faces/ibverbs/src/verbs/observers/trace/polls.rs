//! Empty polls. A program may make millions of them, so consecutive empty polls become one record.
use adverb_trace::{Record, now, record, thread};
use std::cell::Cell;

/// Longest time of a row of polls in one record, in nanoseconds.
const ROW: u64 = 10_000_000;

/// Consecutive empty polls of a thread.
#[derive(Clone, Copy)]
struct Row {
    cq: u32,
    call: &'static str,
    from: u64,
    to: u64,
    polls: u64,
}

thread_local! {
    static ROW_OF_THREAD: Cell<Option<Row>> = const { Cell::new(None) };
}

/// This thread does something other than polling an empty queue. Records the polls before.
pub fn empty_polls_end() {
    if let Some(row) = ROW_OF_THREAD.take() {
        let (t, d, call) = (row.from, row.to - row.from, row.call.into());
        let (cq, empty, done) = (row.cq, row.polls, Vec::new());
        record(&Record::Poll { t, d, tid: thread(), call, cq, empty, done, result: 0 });
    }
}

/// A poll of this thread found nothing.
pub fn empty_poll(cq: u32, call: &'static str, t: u64) {
    let to = now();
    match ROW_OF_THREAD.get() {
        Some(row) if row.cq == cq && row.call == call && to - row.from < ROW => {
            ROW_OF_THREAD.set(Some(Row { to, polls: row.polls + 1, ..row }));
        }
        _ => {
            empty_polls_end();
            ROW_OF_THREAD.set(Some(Row { cq, call, from: t, to, polls: 1 }));
        }
    }
}
