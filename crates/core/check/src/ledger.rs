//! The ledger: the arguments and results of a program's calls, and the mistakes found in them.
use crate::events::Events;
use crate::objects::{Kind, Made, Objects};
use crate::picture::Picture;
use crate::queues::{Arm, Cq, Qp, Request, Srq, take_receive};
use crate::regions::{Deregistered, Regions, Shared};
use crate::report::{Reporter, count};
use crate::state::{Edge, FailedCall, FailedCompletion, OpenEvent};
use crate::values::{Completed, Piece, QueuePair};
use crate::{Code, CodeAddress, Report, Source};
use std::collections::{BTreeMap, HashMap};

/// A WRITE posted by this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) to: Piece,
    pub(crate) place: CodeAddress,
}

/// The calls of a process.
#[derive(Debug, Default)]
pub struct Ledger {
    pub(crate) reporter: Reporter,
    pub(crate) qps: HashMap<u32, Qp>,
    pub(crate) cqs: HashMap<u32, Cq>,
    pub(crate) regions: Regions,
    pub(crate) events: Events,
    /// Events of rdma_cm without acknowledgement, the oldest first.
    pub(crate) connection_events: Vec<OpenEvent>,
    /// Shared receive queues, by number.
    pub(crate) srqs: HashMap<u32, Srq>,
    /// Calls seen.
    pub(crate) calls: u64,
    pub(crate) failed_calls: Vec<FailedCall>,
    /// The first failed completion that is no flush, or else the first flush, since the program
    /// last began anew.
    pub(crate) failed_completion: Option<FailedCompletion>,
    /// An examination has found a queue pair that failed for a reason of its own.
    pub(crate) explained: bool,
    /// Queue pairs whose connection the program does not know to be established, by id of rdma_cm.
    pub(crate) connecting: HashMap<u32, u32>,
    /// A message was polled before: the queue pair, and the call of the poll.
    pub(crate) early: Option<(u32, CodeAddress)>,
    /// The last WRITE.
    pub(crate) last_write: Option<Written>,
    /// Regions that were deregistered with posted receives, by key.
    pub(crate) orphaned: BTreeMap<u32, Deregistered>,
    pub(crate) picture: Picture,
    /// By descriptor number.
    pub(crate) edges: HashMap<i32, Edge>,
    pub(crate) objects: Objects,
    /// Place of the last poll of a failed completion.
    failed: CodeAddress,
    /// Memory ever given to the device for writing, by first address.
    written: BTreeMap<u64, u64>,
}

impl Ledger {
    /// The reports since the last call.
    pub fn reports(&mut self) -> Vec<Report> {
        self.reporter.take()
    }

    /// An object was created. `handle` is the program's handle.
    pub fn made(&mut self, kind: Kind, handle: usize, made: Made) {
        self.objects.add(kind, handle, made);
    }

    /// An object was destroyed.
    pub fn ended(&mut self, kind: Kind, handle: usize) {
        self.objects.remove(kind, handle);
    }

    /// A CQ was created or resized.
    pub fn cq(&mut self, number: u32, entries: usize, made: CodeAddress) {
        let new = Cq { made, ..Cq::default() };
        let cq = self.cqs.entry(number).or_insert(new);
        cq.entries = entries;
    }

    /// A CQ was destroyed.
    pub fn cq_destroyed(&mut self, number: u32) {
        self.cqs.remove(&number);
        self.events.forget(Source::Completion(number));
        self.events.forget(Source::Cq(number));
    }

    /// A CQ was armed.
    pub fn armed(&mut self, number: u32, place: CodeAddress) {
        if let Some(cq) = self.cqs.get_mut(&number) {
            cq.arm = Some(Arm { place, after: cq.completions, emptied: false });
        }
    }

    /// `ibv_poll_cq` has returned completions with these `wr_id` values. [`Self::polled`] was
    /// called for each completion before.
    pub fn poll_returned(&mut self, number: u32, wr_ids: Vec<u64>, place: CodeAddress) {
        let Some(cq) = self.cqs.get_mut(&number) else { return };
        if !wr_ids.is_empty() {
            cq.batch = wr_ids;
            return;
        }
        cq.found_empty = place;
        cq.empty_polls += 1;
        if let Some(arm) = &mut cq.arm {
            arm.emptied = true;
        }
    }

    /// The completions polled from each CQ, and the number of polls since that found none.
    #[must_use]
    pub fn polls(&self) -> HashMap<u32, (u64, u64)> {
        self.cqs.iter().map(|(number, cq)| (*number, (cq.completions, cq.empty_polls))).collect()
    }

    /// A connection of rdma_cm begins.
    pub fn connecting(&mut self, id: u32, queue_pair: u32) {
        self.connecting.insert(id, queue_pair);
    }

    /// A queue pair was created.
    pub fn queue_pair(&mut self, of: QueuePair, place: CodeAddress) {
        self.begins_anew();
        self.qps.insert(of.number, Qp { of, moved: place, ..Qp::default() });
    }

    /// The program changed the state of a queue pair.
    pub fn queue_pair_moved(&mut self, number: u32, place: CodeAddress) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.moved = place;
        }
    }

    /// A queue pair was resized.
    pub fn queue_pair_resized(&mut self, number: u32, max_send: usize, max_recv: usize) {
        if let Some(qp) = self.qps.get_mut(&number) {
            (qp.of.max_send, qp.of.max_recv) = (max_send, max_recv);
        }
    }

    /// The program moved a queue pair to the error state.
    pub fn queue_pair_stopped(&mut self, number: u32) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.stopped = true;
        }
    }

    /// A queue pair was reset. Its posted requests, and its completions in the CQs, no longer
    /// exist.
    pub fn queue_pair_reset(&mut self, number: u32) {
        self.begins_anew();
        self.discard(number);
    }

    /// Forgets the requests of a queue pair.
    fn discard(&mut self, number: u32) {
        let Some(qp) = self.qps.get_mut(&number) else { return };
        let (of, sends, receives) = (qp.of, qp.sends.signaled(), qp.receives.len());
        let left = qp.sends.posted.len() + receives;
        let discarded = if left > 0 { Some((left, qp.moved)) } else { qp.discarded };
        *qp = Qp { of, moved: qp.moved, discarded, ..Qp::default() };
        self.expect_less(of.send_cq, sends);
        self.expect_less(of.recv_cq, receives);
    }

    /// A queue pair was destroyed.
    pub fn queue_pair_destroyed(&mut self, number: u32) {
        self.discard(number);
        self.qps.remove(&number);
        self.events.forget(Source::QueuePair(number));
    }

    /// A queue pair got an RNR timer; code 0 is the longest.
    pub fn rnr_timer(&mut self, number: u32, code: u8, place: CodeAddress) {
        if let Some(qp) = self.qps.get_mut(&number) {
            qp.longest_timer = (code == 0).then_some(place);
        }
    }

    /// A call truncated values. `words` names the fields and the values.
    pub fn value_cut(&mut self, words: &str, place: CodeAddress) {
        self.reporter.say(Code::ValueCut, &[("set", place)], || {
            format!("{words}, as on NICs; devices that do not cut values use the whole value")
        });
    }

    /// A message was refused because there was no receive, and the longest timer makes the sender
    /// wait now. This is not reported earlier: connections of rdma_cm set this timer by default,
    /// and most never need the timer.
    pub fn receive_was_late(&mut self, number: u32) {
        let Some(place) = self.qps.get(&number).and_then(|qp| qp.longest_timer) else { return };
        self.reporter.say(Code::LongestRnrTimer, &[("set", place)], || {
            format!(
                "a message came to queue pair {number:#x} before its receive was posted, and the \
                 sender now waits for the time of min_rnr_timer: 0 means 655.36 ms, the longest \
                 time (1 means 10 µs, 12 means 640 µs)"
            )
        });
    }

    /// The device may write to this memory, so its bytes may change without the program.
    pub fn write_to(&mut self, piece: Piece) {
        let Some(start) = self.regions.memory_of(&piece).filter(|_| piece.length > 0) else {
            return;
        };
        let (mut first, mut end) = (start, start + u64::from(piece.length));
        let met: Vec<_> = self
            .written
            .range(..=end)
            .rev()
            .map(|(s, e)| (*s, *e))
            .take_while(|(_, e)| *e >= start)
            .collect();
        for (s, e) in met {
            self.written.remove(&s);
            (first, end) = (first.min(s), end.max(e));
        }
        self.written.insert(first, end);
    }

    /// The locations of a request's bytes. `None` unless only the program may change the bytes, and
    /// all of them are registered.
    #[must_use]
    pub fn bytes_of(&self, request: &Request) -> Option<Vec<(u64, u32)>> {
        let place = |piece: &Piece| {
            let start = self.regions.memory_of(piece)?;
            let end = start + u64::from(piece.length);
            let written = self.written.range(..end).next_back().is_some_and(|(_, e)| *e > start);
            (!written).then_some((start, piece.length))
        };
        if request.writes || request.pieces.is_empty() {
            return None;
        }
        request.pieces.iter().map(place).collect()
    }

    /// A completion was polled. Returns the freed requests.
    pub fn polled(&mut self, cq: u32, done: Completed, place: CodeAddress) -> Vec<Request> {
        if let Some(cq) = self.cqs.get_mut(&cq) {
            cq.polled = place;
            cq.completions += 1;
            cq.empty_polls = 0;
            cq.batch.clear();
        }
        if done.receive && done.ok && self.connecting.values().any(|qp| *qp == done.queue_pair) {
            self.early.get_or_insert((done.queue_pair, place));
        }
        let Some(qp) = self.qps.get_mut(&done.queue_pair) else {
            // A queue pair of another kind that takes receives of a shared receive queue.
            self.srqs.values_mut().find_map(|srq| take_receive(&mut srq.receives, done.wr_id));
            return Vec::new();
        };
        if !done.ok && !qp.told {
            let queue = if done.receive { &qp.receives } else { &qp.sends.posted };
            let own = queue.iter().find(|r| r.wr_id == done.wr_id);
            let posted = own.map_or(0, |request| request.place);
            let stopped = qp.stopped;
            let failed = FailedCompletion { done, polled: place, posted, stopped, overcome: false };
            if !self.failed_completion.is_some_and(|earlier| earlier.leads(done)) {
                self.failed_completion = Some(failed);
            }
        }
        qp.told |= !done.ok;
        if !done.ok {
            self.failed = place;
        }
        let (freed, arrived) = if done.receive {
            let own = take_receive(&mut qp.receives, done.wr_id);
            let own_queue = own.is_some();
            let own = own.or_else(|| {
                self.srqs.values_mut().find_map(|srq| take_receive(&mut srq.receives, done.wr_id))
            });
            if let Some(request) = own.filter(|_| !done.ok && !done.flushed) {
                self.orphan_used(&request);
            }
            (Vec::new(), usize::from(own_queue))
        } else {
            let freed = qp.sends.polled(done.wr_id, done.ok);
            let arrived = freed.iter().filter(|r| r.signaled).count();
            (freed, arrived)
        };
        self.expect_less(Some(cq), arrived);
        freed
    }

    /// The bytes of a request have changed since its post.
    pub fn changed(&mut self, number: u32, request: &Request, place: CodeAddress) {
        self.reporter.say(
            Code::BufferChanged,
            &[("posted", request.place), ("polled", place)],
            || {
                format!(
                    "the buffer of the request with wr_id {:#x} on queue pair {number:#x} changed \
                 while it was posted, so the device may have sent the old or the new bytes; do not \
                 write to a buffer before a completion of this request, or of a later request, is \
                 polled",
                    request.wr_id
                )
            },
        );
    }

    /// The program took an event.
    pub fn event_taken(&mut self, source: Source, place: CodeAddress) {
        self.events.take(source, place);
    }

    /// The program acknowledged events.
    pub fn events_acknowledged(&mut self, source: Source, n: u64, place: CodeAddress) {
        let too_many = self.events.acknowledge(source, n);
        if too_many == 0 {
            return;
        }
        let other = self.events.other(source);
        let mut places = vec![("acknowledged", place)];
        places.extend(other.map(|(_, taken)| ("the other's event taken", taken.place)));
        self.reporter.say(Code::EventOveracknowledged, &places, || {
            let own = format!(
                "{} acknowledges {} of {source} more than the program took",
                source.call(),
                count(too_many as usize, "event")
            );
            match other {
                Some((other, taken)) => format!(
                    "{own}, while {} of {other} {} not acknowledged: destroying {other} will never \
                     return",
                    count(taken.waiting as usize, "event"),
                    if taken.waiting == 1 { "is" } else { "are" }
                ),
                None => own,
            }
        });
    }

    /// Number of events of this source without acknowledgement.
    #[must_use]
    pub fn unacknowledged(&self, source: Source) -> u64 {
        self.events.of(source).waiting
    }

    /// An object is being destroyed while events of it are not acknowledged.
    pub fn not_acknowledged(&mut self, source: Source, place: CodeAddress) {
        let taken = self.events.of(source);
        if taken.waiting == 0 {
            return;
        }
        let places = [("event taken", taken.place), ("destroyed", place)];
        self.reporter.say(Code::EventNotAcknowledged, &places, || {
            format!(
                "{source} is destroyed while {} of this object {} not acknowledged: the call waits \
                 for {}, and never returns if no other thread makes this call",
                count(taken.waiting as usize, "event"),
                if taken.waiting == 1 { "is" } else { "are" },
                source.call()
            )
        });
    }

    /// A shared receive queue was destroyed.
    pub fn srq_destroyed(&mut self, number: u32) {
        self.srqs.remove(&number);
        self.events.forget(Source::Srq(number));
    }

    /// The process is about to fork, and the child gets copies of this memory range. Called once
    /// per mapping, in the order of addresses. Does not allocate.
    pub fn share(&self, shared: &mut Shared, start: u64, end: u64) {
        for region in self.regions.all() {
            let Some(at) = region.memory.filter(|at| start < at + region.length && *at < end)
            else {
                continue;
            };
            // A region that begins below the end of the previous mapping was already counted.
            if region.length > 0 && at >= shared.end {
                shared.regions += 1;
                let first = shared.first.filter(|(lkey, _)| *lkey < region.lkey);
                shared.first = first.or(Some((region.lkey, region.place)));
            }
        }
        shared.end = end;
    }

    /// The process forked at `place`, and the child shares these regions.
    pub fn forked(&mut self, shared: Shared, place: CodeAddress) {
        let Shared { regions, first: Some((_, registered)), .. } = shared else { return };
        let places = [("fork", place), ("registered", registered)];
        self.reporter.say(Code::RegisteredMemoryForked, &places, || {
            format!(
                "the process forks while {} {} shared with the child: the \
                 first process that writes gets a new page, and a NIC keeps the old page; call \
                 ibv_fork_init before the first registration, or keep the memory out of the child \
                 by madvise(MADV_DONTFORK)",
                count(regions, "registered region"),
                if regions == 1 { "is" } else { "are" }
            )
        });
    }

    /// The process ends with this status. `filled` is the number of failed completions with filled
    /// undefined fields.
    pub fn at_exit(&mut self, status: i32, filled: u64) {
        if status != 0 {
            self.given_up();
        }
        // A queue pair that the program did not stop has failed for a reason of its own.
        let expected = |failed: FailedCompletion| failed.done.flushed && failed.stopped;
        let expected = self.failed_completion.is_none_or(expected);
        if status != 0 && filled > 0 && expected && !self.explained {
            let last = self.failed;
            self.reporter.say(Code::UndefinedFields, &[("polled", last)], || {
                format!(
                    "the program ends with status {status} after {} with random values in the \
                     undefined fields (opcode, byte_len, imm_data and others): in a failed \
                     completion only wr_id, status, qp_num and vendor_err are defined",
                    count(filled as usize, "failed completion")
                )
            });
        }
        self.orphans_left();
        for left in self.objects.passed_over() {
            self.reporter.say(Code::LeftAtExit, &[("made", left.place)], || {
                format!(
                    "{} of {} made in this place {} never {}, though later ones were",
                    left.left,
                    count(left.made as usize, &left.kind.to_string()),
                    if left.left == 1 { "was" } else { "were" },
                    left.kind.ended()
                )
            });
        }
    }
}
