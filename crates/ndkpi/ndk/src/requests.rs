//! What a queue pair remembers of its initiator requests until their completions have been read.
//!
//! Requests with a completion are a ring between the consumer's posting thread and the thread that
//! reads completions: both go through it in the order of posting, so neither takes a lock (NDK-4).
//! A slot is free again when its completion has been read.
//!
//! Silent requests complete only when they fail, so nobody would free their slots. They have a ring
//! of their own that is simply written over: it has a slot more than the device's queue, so a slot
//! written over belongs to a request that left the device's queue. That one succeeded, because a
//! queue pair with a failed request takes no more.
//!
//! The queue is as deep as the consumer asked, whatever the device has: a request counts until its
//! completion was read, a silent one until it has left the device's queue. How far that is, is only
//! asked when the queue looks full.
//!
//! A read that invalidates its first entry is two requests of the device and one of the consumer's:
//! an invalidate behind a read without completion. If the read fails, its completion is the one,
//! and that of the flushed invalidate is dropped.
use crate::flags::OperationType;
use crate::status::NtStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// In a work request id: the request is silent.
const SILENT: u64 = 1 << 63;
/// The read of a read that invalidates.
const FIRST_HALF: u64 = 1 << 62;
/// The invalidate of a read that invalidates.
const SECOND_HALF: u64 = 1 << 61;
const SEQUENCE: u64 = SECOND_HALF - 1;

/// In a slot, beside the type: the first half failed and was reported.
const REPORTED: u64 = 1 << 32;

/// The initiator requests of a queue pair.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The consumer's word for the queue pair, in every result.
    pub(crate) qp_context: u64,
    depth: u64,
    device_depth: u64,
    signaled: Ring,
    silent: Ring,
    /// Oldest silent request that counts; the posting thread's.
    silent_head: AtomicU64,
    /// Entries of the device's queue used so far; the posting thread's.
    entries: AtomicU64,
    /// Oldest request whose completion was not read; written by the thread that reads completions.
    head: AtomicU64,
    /// The queue pair was closed: what it left in the completion queue can still be read.
    pub(crate) closed: AtomicBool,
}

#[derive(Debug)]
struct Ring {
    slots: Box<[Slot]>,
    /// Number of the next request; written by the posting thread.
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    context: AtomicU64,
    /// The operation's type, and [`REPORTED`].
    info: AtomicU64,
    /// Entries of the device's queue used up to this request.
    entries: AtomicU64,
}

/// A slot for a request about to be posted.
#[derive(Debug)]
pub(crate) struct Ticket {
    silent: bool,
    sequence: u64,
}

impl Ticket {
    /// The work request id of a request that is one for the device too.
    pub(crate) fn wr_id(&self) -> u64 {
        self.sequence | if self.silent { SILENT } else { 0 }
    }
    /// Those of the two halves of a read that invalidates.
    pub(crate) fn halves(&self) -> (u64, u64) {
        (self.wr_id() | FIRST_HALF, self.wr_id() | SECOND_HALF)
    }
}

impl Requests {
    /// For `depth` requests of the consumer's on a device queue of `device_depth`.
    pub(crate) fn new(qp_context: u64, depth: u32, device_depth: u32) -> Self {
        Requests {
            qp_context,
            depth: depth.into(),
            device_depth: device_depth.into(),
            signaled: Ring::new(depth.into()),
            silent: Ring::new(u64::from(device_depth) + 1),
            silent_head: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            head: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// A slot for a request; it counts only after [`Requests::posted`]. `free` answers how many
    /// entries the device's queue has left.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` while as many requests as the queue is deep are outstanding.
    pub(crate) fn reserve(
        &self,
        context: u64,
        operation: OperationType,
        silent: bool,
        free: impl FnOnce() -> usize,
    ) -> Result<Ticket, NtStatus> {
        if self.outstanding() >= self.depth {
            self.retire_silent(free() as u64);
            if self.outstanding() >= self.depth {
                return Err(NtStatus::INSUFFICIENT_RESOURCES);
            }
        }
        let ring = if silent { &self.silent } else { &self.signaled };
        let sequence = ring.next.load(Ordering::Relaxed);
        let slot = ring.slot(sequence);
        slot.context.store(context, Ordering::Relaxed);
        slot.info.store(u64::from(operation as u32), Ordering::Relaxed);
        Ok(Ticket { silent, sequence })
    }

    fn outstanding(&self) -> u64 {
        let signaled = self.signaled.next.load(Ordering::Relaxed) - self.head.load(Ordering::Acquire);
        signaled + self.silent.next.load(Ordering::Relaxed) - self.silent_head.load(Ordering::Relaxed)
    }

    /// Silent requests that have left the device's queue, which has `free` entries left, do not
    /// count any more.
    fn retire_silent(&self, free: u64) {
        let left = (self.entries.load(Ordering::Relaxed) + free).saturating_sub(self.device_depth);
        let next = self.silent.next.load(Ordering::Relaxed);
        let mut head = self.silent_head.load(Ordering::Relaxed);
        while head < next && self.silent.slot(head).entries.load(Ordering::Relaxed) <= left {
            head += 1;
        }
        self.silent_head.store(head, Ordering::Relaxed);
    }

    /// The device took the request, as so many entries of its queue.
    pub(crate) fn posted(&self, ticket: &Ticket, entries: usize) {
        let ring = if ticket.silent { &self.silent } else { &self.signaled };
        let used = self.entries.load(Ordering::Relaxed) + entries as u64;
        self.entries.store(used, Ordering::Relaxed);
        ring.slot(ticket.sequence).entries.store(used, Ordering::Relaxed);
        ring.next.store(ticket.sequence + 1, Ordering::Relaxed);
    }

    /// Will [`Requests::completed`] hide this completion?
    pub(crate) fn hides(&self, wr_id: u64) -> bool {
        let ring = if wr_id & SILENT != 0 { &self.silent } else { &self.signaled };
        let info = ring.slot(wr_id & SEQUENCE).info.load(Ordering::Relaxed);
        wr_id & SECOND_HALF != 0 && info & REPORTED != 0
    }

    /// The consumer's word and the type of a completed request; `None` if the completion is not to
    /// be seen. The device's queue and completion queue have handed the slot's contents over to
    /// this thread.
    pub(crate) fn completed(&self, wr_id: u64) -> Option<(u64, OperationType)> {
        let silent = wr_id & SILENT != 0;
        let sequence = wr_id & SEQUENCE;
        let slot = if silent { self.silent.slot(sequence) } else { self.signaled.slot(sequence) };
        let context = slot.context.load(Ordering::Relaxed);
        let info = slot.info.load(Ordering::Relaxed);
        let result = operation(info as u32).map(|o| (context, o));
        if wr_id & FIRST_HALF != 0 {
            slot.info.store(info | REPORTED, Ordering::Relaxed);
            return result;
        }
        if !silent {
            self.head.store(sequence + 1, Ordering::Release);
        }
        if info & REPORTED != 0 { None } else { result }
    }
}

impl Ring {
    fn new(slots: u64) -> Self {
        Ring {
            slots: (0..slots.next_power_of_two()).map(|_| Slot::default()).collect(),
            next: AtomicU64::new(0),
        }
    }
    fn slot(&self, sequence: u64) -> &Slot {
        &self.slots[sequence as usize & (self.slots.len() - 1)]
    }
}

fn operation(code: u32) -> Option<OperationType> {
    use OperationType::{Bind, FastRegister, Invalidate, Read, Send, Write};
    [Send, FastRegister, Bind, Invalidate, Read, Write].into_iter().find(|o| *o as u32 == code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_its_completion_was_read() {
        let requests = Requests::new(0, 3, 6);
        let post = |context| {
            let ticket = requests.reserve(context, OperationType::Send, false, || 0)?;
            requests.posted(&ticket, 1);
            Ok::<u64, NtStatus>(ticket.wr_id())
        };
        let mut ids = Vec::from_iter((0..3).map(|i| post(i).unwrap()));
        assert_eq!(post(3).unwrap_err(), NtStatus::INSUFFICIENT_RESOURCES);
        for context in 0..100 {
            assert_eq!(requests.completed(ids.remove(0)), Some((context, OperationType::Send)));
            ids.push(post(context + 3).unwrap());
            assert_eq!(post(0).unwrap_err(), NtStatus::INSUFFICIENT_RESOURCES, "one was read, one is free");
        }
    }

    #[test]
    fn a_refused_request_leaves_no_trace() {
        let requests = Requests::new(0, 1, 2);
        let _ = requests.reserve(7, OperationType::Write, false, || 0).unwrap();
        let ticket = requests.reserve(8, OperationType::Read, false, || 0).unwrap();
        requests.posted(&ticket, 1);
        assert_eq!(requests.completed(ticket.wr_id()), Some((8, OperationType::Read)));
    }

    #[test]
    fn silent_requests_need_nobody_to_free_them() {
        let requests = Requests::new(0, 2, 4);
        for i in 0..1000 {
            let ticket = requests.reserve(i, OperationType::Write, true, || 4).unwrap();
            requests.posted(&ticket, 1);
            // Up to as many as the device's queue holds may still fail.
            let oldest = i.saturating_sub(3);
            assert_eq!(requests.completed(oldest | SILENT), Some((oldest, OperationType::Write)));
        }
    }

    #[test]
    fn a_read_that_invalidates_has_one_completion() {
        let requests = Requests::new(0, 2, 4);
        for fails in [false, true, false] {
            for silent in [false, true] {
                let ticket = requests.reserve(5, OperationType::Read, silent, || 4).unwrap();
                requests.posted(&ticket, 2);
                let (first, second) = ticket.halves();
                let read = Some((5, OperationType::Read));
                if fails {
                    assert!(!requests.hides(first) && !requests.hides(second));
                    assert_eq!(requests.completed(first), read);
                    assert!(!requests.hides(first) && requests.hides(second));
                    assert_eq!(requests.completed(second), None);
                } else {
                    assert_eq!(requests.completed(second), read);
                }
            }
        }
    }

    /// NDK-9.
    #[test]
    fn silent_requests_count_until_they_have_left_the_device() {
        let requests = Requests::new(0, 3, 6);
        let post = |silent, entries, free| {
            let ticket = requests.reserve(0, OperationType::Read, silent, || free)?;
            requests.posted(&ticket, entries);
            Ok::<u64, NtStatus>(ticket.wr_id())
        };
        // The second is two requests of the device.
        post(true, 1, 6).unwrap();
        post(true, 2, 5).unwrap();
        let read = post(false, 1, 3).unwrap();
        let full = Err(NtStatus::INSUFFICIENT_RESOURCES);
        assert_eq!(post(true, 1, 2), full, "nothing has left");
        assert!(post(true, 1, 3).is_ok(), "the first has left");
        assert_eq!(post(true, 1, 3), full, "of the second a half has");
        assert!(post(false, 1, 4).is_ok());
        assert_eq!(post(true, 1, 4), full);
        assert!(requests.completed(read).is_some());
        assert!(post(true, 1, 5).is_ok(), "and the completion of the third was read");
    }
}
