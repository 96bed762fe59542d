//! The initiator requests of a queue pair, stored until their completions have been read.
//!
//! Requests with a completion are stored in a ring between two threads of the consumer: the thread
//! that posts, and the thread that reads completions. Both go through the ring in the order of
//! posting, so neither takes a lock (NDK-4). A slot is free again when its completion has been
//! read.
//!
//! Silent requests complete only if they fail, so no completion would free their slots. They have a
//! separate ring, and its slots are overwritten. This ring has one more slot than the device's
//! queue. So an overwritten slot belongs to a request that has left the device's queue. That
//! request succeeded, because a queue pair with a failed request takes no more requests.
//!
//! The queue has the depth that the consumer asked for, whatever the depth of the device's queue. A
//! request counts until its completion was read. A silent request counts until it has left the
//! device's queue. The device is asked how far its queue has advanced only when the queue looks
//! full.
//!
//! A read that invalidates its first entry is one request of the consumer and two requests of the
//! device: a read without completion, followed by an invalidate. If the read fails, the completion
//! of the read is reported, and the completion of the flushed invalidate is dropped.
use crate::flags::OperationType;
use crate::status::NtStatus;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bit of a work request id: the request is silent.
const SILENT: u64 = 1 << 63;
/// Bit of a work request id: the read of a read that invalidates.
const FIRST_HALF: u64 = 1 << 62;
/// Bit of a work request id: the invalidate of a read that invalidates.
const SECOND_HALF: u64 = 1 << 61;
const SEQUENCE: u64 = SECOND_HALF - 1;

/// Bit of a slot's `info`, beside the type: the first half failed and was reported.
const REPORTED: u64 = 1 << 32;

/// The initiator requests of a queue pair.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The consumer's context of the queue pair, which every result contains.
    pub(crate) qp_context: u64,
    depth: u64,
    device_depth: u64,
    signaled: Ring,
    silent: Ring,
    /// Number of the oldest silent request that counts. Used by the posting thread alone.
    silent_head: AtomicU64,
    /// Number of entries of the device's queue used so far. Used by the posting thread alone.
    entries: AtomicU64,
    /// Number of the oldest request with an unread completion. Written by the thread that reads
    /// completions.
    head: AtomicU64,
    /// The queue pair is closed. Its completions in the completion queue can still be read.
    pub(crate) closed: AtomicBool,
}

#[derive(Debug)]
struct Ring {
    slots: Box<[Slot]>,
    /// Number of the next request. Written by the posting thread.
    next: AtomicU64,
}

#[derive(Debug, Default)]
struct Slot {
    context: AtomicU64,
    /// The operation's type, and [`REPORTED`].
    info: AtomicU64,
    /// Number of entries of the device's queue used up to and including this request.
    entries: AtomicU64,
}

/// A slot for a request that is about to be posted.
#[derive(Debug)]
pub(crate) struct Ticket {
    silent: bool,
    sequence: u64,
}

impl Ticket {
    /// The work request id of a request that is a single request of the device, too.
    pub(crate) fn wr_id(&self) -> u64 {
        self.sequence | if self.silent { SILENT } else { 0 }
    }
    /// The work request ids of the two halves of a read that invalidates.
    pub(crate) fn halves(&self) -> (u64, u64) {
        (self.wr_id() | FIRST_HALF, self.wr_id() | SECOND_HALF)
    }
}

impl Requests {
    /// `depth` is the number of the consumer's requests, `device_depth` the depth of the device's
    /// queue.
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

    /// Reserves a slot for a request. The request counts only after [`Requests::posted`]. `free`
    /// returns the number of free entries of the device's queue.
    ///
    /// # Errors
    /// `INSUFFICIENT_RESOURCES` while the number of outstanding requests equals the depth.
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
        let signaled =
            self.signaled.next.load(Ordering::Relaxed) - self.head.load(Ordering::Acquire);
        signaled + self.silent.next.load(Ordering::Relaxed)
            - self.silent_head.load(Ordering::Relaxed)
    }

    /// Stops counting silent requests that have left the device's queue. `free` is the number of
    /// free entries of the device's queue.
    fn retire_silent(&self, free: u64) {
        let left = (self.entries.load(Ordering::Relaxed) + free).saturating_sub(self.device_depth);
        let next = self.silent.next.load(Ordering::Relaxed);
        let mut head = self.silent_head.load(Ordering::Relaxed);
        while head < next && self.silent.slot(head).entries.load(Ordering::Relaxed) <= left {
            head += 1;
        }
        self.silent_head.store(head, Ordering::Relaxed);
    }

    /// The device took the request, which occupies `entries` entries of the device's queue.
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

    /// The consumer's context and the type of a completed request. `None` if the completion is
    /// hidden. Relaxed loads suffice: the device's queues have already synchronised the slot's
    /// contents with this thread.
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
            assert_eq!(
                post(0).unwrap_err(),
                NtStatus::INSUFFICIENT_RESOURCES,
                "one was read, one is free"
            );
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
            // The most recent requests, as many as fit the device's queue, may still fail.
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
        // The second request is two requests of the device.
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
