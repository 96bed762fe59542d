//! The work of the check before and after a call, and lists of work requests.
use super::report::is_ours;
use super::sums::sum;
use super::{Call, CallOutcome, Check, Taken, What};
use crate::abi::*;
use crate::handles::hot;
use crate::pure::strings::ibv_wc_status_str;
use crate::verbs::failure;
use crate::verbs::observers::undefined::scramble;
use crate::verbs::post::{requests, slice};
use adverb_check::{CodeAddress, Completed, Piece, Reads, Refused, Request, without_way};
use adverb_device::engine::{QpState, QpType};
use adverb_device::{Cq, Errno, Qp};
use adverb_sync::MutexGuard;
use core::ffi::c_int;
use std::hash::{DefaultHasher, Hasher};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// State of the check between `before` and `after` of a call.
pub enum Kept {
    Nothing,
    Send(Posting, Option<Cut>),
    Chain(Posting),
    Receive(Receiving),
    /// The number of the shared receive queue, and the receives.
    SharedReceive(u32, Vec<Request>),
}

/// Requests of a post to a send queue. Other posts wait until this post has ended.
pub struct Posting {
    number: u32,
    requests: Vec<Request>,
    /// This many of the requests have a place in the queue.
    pub(super) room: usize,
    place: CodeAddress,
    _alone: MutexGuard<'static, ()>,
}

impl Posting {
    /// Does the queue lack a place for the last requests?
    pub(super) fn is_short(&self) -> bool {
        self.room < self.requests.len()
    }

    /// How many requests come before the request with the address `at` in the program.
    fn before(&self, at: usize) -> usize {
        self.requests.iter().position(|r| r.at == at).unwrap_or(0)
    }
}

/// The program's list is cut for the duration of the call: the last request with a place in the
/// queue, and the first request without a place.
#[derive(Clone, Copy)]
pub struct Cut {
    last: *mut ibv_send_wr,
    next: *mut ibv_send_wr,
}

/// Receives of a post to a queue pair. Other posts wait until this post has ended.
pub struct Receiving {
    number: u32,
    requests: Vec<Request>,
    place: CodeAddress,
    _alone: MutexGuard<'static, ()>,
}

/// Is the queue pair in a state that only flushes?
fn is_in_error(qp: &Qp) -> bool {
    matches!(qp.state(), QpState::Err | QpState::Sqe)
}

impl Check {
    /// The program is about to make a call.
    ///
    /// # Safety
    /// The caller makes this call now.
    pub(super) unsafe fn before(&'static self, call: &Call<'_>) -> Result<Kept, CallOutcome> {
        let place = match call.what() {
            What::PostSend { .. }
            | What::CompleteChain { .. }
            | What::PostRecv { .. }
            | What::PostSrqRecv { .. } => self.place_of(call),
            _ => call.place(),
        };
        // A reason of an earlier call is not the reason of this call.
        drop(failure::last());
        if waits(call) {
            self.inside.lock().insert(nix::unistd::gettid().as_raw(), place);
        }
        // SAFETY: the caller's promise.
        unsafe {
            match call.what() {
                What::PostSend { qp, wr } => self.sends(qp, wr, place),
                What::CompleteChain { qp } => self.completes_chain(qp, place),
                What::PostRecv { qp, wr } => Ok(self.receives(qp, wr, place)),
                What::PostSrqRecv { srq, wr } => {
                    let requests = receives(wr, place);
                    let number = hot(srq).map_or(0, |obj| obj.srq.number());
                    self.tell(|ledger| ledger.shared_receiving(number, &requests));
                    Ok(Kept::SharedReceive(number, requests))
                }
                _ => Ok(Kept::Nothing),
            }
        }
    }

    /// The call has returned.
    ///
    /// # Safety
    /// The caller makes this call now.
    pub(super) unsafe fn after(
        &'static self,
        call: &Call<'_>,
        outcome: &mut CallOutcome,
        kept: Kept,
    ) {
        match (call.what(), kept) {
            (What::Poll { cq, wc }, _) => {
                let found = outcome.code();
                let place = if found > 0 { self.place_of(call) } else { call.place() };
                // SAFETY: the program's places. The call has filled the number of places in its
                // result.
                unsafe { self.polled_all(cq, wc, found, place) }
            }
            (What::StartPoll { cq } | What::NextPoll { cq }, _) if outcome.code() == 0 => {
                // SAFETY: this thread polls.
                unsafe { self.presented(cq, self.place_of(call)) }
            }
            // SAFETY: the chain is open.
            (What::StartChain { qp }, _) => unsafe { crate::verbs::wr_api::note(qp) },
            // SAFETY: the program's list; the call no longer uses it.
            (_, Kept::Send(posting, cut)) => unsafe { self.sent(posting, cut, outcome) },
            (_, Kept::Chain(posting)) => self.posted(&posting, outcome.code(), 0),
            (_, Kept::Receive(receiving)) => self.received(&receiving, outcome),
            (_, Kept::SharedReceive(number, requests)) if outcome.code() != 0 => {
                let taken = requests.iter().position(|r| r.at == outcome.refused).unwrap_or(0);
                self.tell(|ledger| ledger.shared_refused(number, &requests[taken..]));
            }
            (What::CqEvent { handle, channel: Some(channel) }, _) => {
                self.looked(
                    Reads::Completions,
                    handle as usize,
                    channel.as_fd(),
                    result_of(outcome),
                );
                if let Taken::Completion(cq) = &outcome.taken {
                    self.event_taken(cq, call.place());
                }
            }
            (What::AsyncEvent { context, device: Some(device), .. }, _) => {
                let (handle, descriptor) = (context as usize, device.async_events());
                self.looked(Reads::Asynchronous, handle, descriptor, result_of(outcome));
                if let Taken::Async(_, element) = &outcome.taken {
                    self.async_event_taken(element);
                }
            }
            (What::Arm { cq, .. }, _) if outcome.code() == 0 => {
                let number = hot(cq).map(|obj| obj.cq.number());
                self.tell(|ledger| {
                    if let Ok(number) = number {
                        ledger.armed(number, call.place());
                    }
                });
            }
            _ => {}
        }
        if waits(call) {
            self.inside.lock().remove(&nix::unistd::gettid().as_raw());
        }
        self.see_to_examiner();
        let why = failure::last();
        // SAFETY: the caller's promise.
        unsafe { self.has_returned(call, outcome, &why) };
        self.called(call, outcome, why);
    }

    /// Notes that the program has made a call, and the reason if the call failed.
    fn called(&self, call: &Call<'_>, outcome: &CallOutcome, why: String) {
        let (name, code, errno) = match call.what() {
            // Polls find nothing most of the time, and never fail in a right program.
            What::Poll { .. } | What::StartPoll { .. } | What::NextPoll { .. } => return,
            What::StartChain { .. } => return,
            What::Arm { .. } => ("ibv_req_notify_cq", outcome.code(), outcome.code()),
            What::PostSend { .. } => ("ibv_post_send", outcome.code(), outcome.code()),
            What::CompleteChain { .. } => ("ibv_wr_complete", outcome.code(), outcome.code()),
            What::PostRecv { .. } => ("ibv_post_recv", outcome.code(), outcome.code()),
            What::PostSrqRecv { .. } => ("ibv_post_srq_recv", outcome.code(), outcome.code()),
            What::CqEvent { .. } => ("ibv_get_cq_event", outcome.code(), outcome.errno),
            What::AsyncEvent { .. } => ("ibv_get_async_event", outcome.code(), outcome.errno),
            What::Named { name, .. } => {
                // The program does not see what its libraries try.
                let why = Some(why).filter(|why| !why.is_empty() && !is_ours(call.place()));
                let name = name.to_string_lossy();
                return self.tell(|ledger| ledger.called(&name, why, call.place()));
            }
        };
        // A full queue and an empty channel are part of right programs.
        let fails = code != 0 && errno != libc::ENOMEM && errno != libc::EAGAIN;
        let why = fails.then(|| match errno {
            libc::EINTR => "a signal interrupted the call (EINTR); make the call again".to_owned(),
            errno => Errno::from_raw(errno).to_string(),
        });
        self.tell(|ledger| ledger.called(name, why, call.place()));
    }

    /// A poll has answered.
    ///
    /// # Safety
    /// `found` completions are at `wc`, if `found` is positive.
    unsafe fn polled_all(&self, cq: *mut ibv_cq, wc: *mut ibv_wc, found: c_int, at: CodeAddress) {
        let queue = hot(cq).ok().map(|obj| obj.cq.clone());
        let (Some(queue), Ok(found)) = (queue, usize::try_from(found)) else { return };
        let mut wr_ids = Vec::with_capacity(found);
        for i in 0..found {
            // SAFETY: the caller's promise.
            let wc = unsafe { &mut *wc.add(i) };
            let ok = wc.status == IBV_WC_SUCCESS;
            let receive = wc.opcode & IBV_WC_RECV != 0;
            let status = status_name(wc.status);
            let done = Completed {
                queue_pair: wc.qp_num,
                wr_id: wc.wr_id,
                ok,
                receive,
                status,
                flushed: wc.status == IBV_WC_WR_FLUSH_ERR,
            };
            self.polled(&queue, done, at);
            if !ok {
                scramble(wc, self.garbage());
            }
            wr_ids.push(wc.wr_id);
        }
        self.tell(|ledger| ledger.poll_returned(queue.number(), wr_ids, at));
    }

    /// Random bits that a program cannot mistake for a value.
    pub(super) fn garbage(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        hash.write_u64(self.filled.fetch_add(1, Ordering::Relaxed));
        hash.finish()
    }

    /// The program gets a completion.
    pub(super) fn polled(&self, cq: &Arc<Cq>, done: Completed, at: CodeAddress) {
        if done.receive && done.ok {
            self.answered(at);
        }
        let freed = self.tell(|ledger| {
            let freed = ledger.polled(cq.number(), done, at);
            let summed = freed.into_iter().filter(|r| r.sum.is_some());
            summed.filter_map(|r| Some((ledger.bytes_of(&r)?, r))).collect::<Vec<_>>()
        });
        self.compare(done.queue_pair, &freed, at);
    }

    /// Notes the checksums of the requests' bytes.
    fn sum_up(&self, requests: &mut [Request]) {
        for request in requests {
            let bytes = self.tell(|ledger| ledger.bytes_of(request));
            request.sum = bytes.and_then(|bytes| sum(&bytes));
        }
    }

    /// The program posts requests to a send queue. A place becomes free when a completion that
    /// frees it was polled, as on a NIC.
    pub(super) fn posting(
        &'static self,
        qp: &Arc<Qp>,
        mut requests: Vec<Request>,
        targets: &[Piece],
        place: CodeAddress,
    ) -> Posting {
        let number = qp.number();
        let _alone = self.alone(number);
        self.sum_up(&mut requests);
        self.awaits_answers(qp, &requests);
        let in_error = is_in_error(qp);
        let room = self.tell(|ledger| {
            for target in targets {
                ledger.write_to(*target);
                ledger.writing(*target, place);
            }
            let room = ledger.room(number, in_error).unwrap_or(usize::MAX);
            ledger.posting(number, &requests, in_error, place);
            room.min(requests.len())
        });
        if room < requests.len() {
            // A hunt learns from refusals at which places the program tries again.
            adverb_hunt::note_refused(without_way(place).0);
        }
        Posting { number, requests, room, place, _alone }
    }

    /// Requests were posted: the errno, and the number of accepted requests after a failure.
    pub(super) fn posted(&self, posting: &Posting, result: c_int, taken: usize) {
        let refused = (result != 0).then(|| Refused {
            taken,
            full: result == libc::ENOMEM,
            why: failure::last(),
        });
        let Posting { number, requests, place, .. } = posting;
        self.tell(|ledger| ledger.posted(*number, requests, refused.as_ref(), *place));
    }

    /// The program posts a list to a send queue. If some requests have no place, only the first
    /// requests are posted.
    ///
    /// # Safety
    /// `wr` is a valid list of the program.
    unsafe fn sends(
        &'static self,
        qp: *mut ibv_qp,
        wr: *mut ibv_send_wr,
        place: CodeAddress,
    ) -> Result<Kept, CallOutcome> {
        let Some(queue_pair) = hot(qp).ok().map(|obj| obj.qp.clone()) else {
            return Ok(Kept::Nothing);
        };
        // SAFETY: the caller's promise.
        let all = unsafe { requests(wr) };
        // SAFETY: as above.
        let all = all.map(|wr| unsafe { request_of(wr, &queue_pair, place) });
        let (requests, targets): (Vec<_>, Vec<_>) = all.unzip();
        let targets: Vec<_> = targets.into_iter().flatten().collect();
        let posting = self.posting(&queue_pair, requests, &targets, place);
        if !posting.is_short() {
            return Ok(Kept::Send(posting, None));
        }
        let request = |n: usize| posting.requests[n].at as *mut ibv_send_wr;
        let next = request(posting.room);
        let Some(last) = posting.room.checked_sub(1).map(request) else {
            self.posted(&posting, libc::ENOMEM, 0);
            return Err(CallOutcome::post(libc::ENOMEM, next));
        };
        // SAFETY: a request of the program, which the library may change during the call.
        unsafe { (*last).next = core::ptr::null_mut() };
        Ok(Kept::Send(posting, Some(Cut { last, next })))
    }

    /// The list was posted.
    ///
    /// # Safety
    /// The list is as [`Check::sends`] left it.
    unsafe fn sent(&self, posting: Posting, cut: Option<Cut>, outcome: &mut CallOutcome) {
        if let Some(Cut { last, next }) = cut {
            // SAFETY: the caller's promise.
            unsafe { (*last).next = next };
            if outcome.code() == 0 {
                outcome.set_code(libc::ENOMEM);
                outcome.refused = next as usize;
            }
        }
        self.posted(&posting, outcome.code(), posting.before(outcome.refused));
    }

    /// The program posts receives to a queue pair.
    ///
    /// # Safety
    /// `wr` is a valid list of the program.
    unsafe fn receives(
        &'static self,
        qp: *mut ibv_qp,
        wr: *mut ibv_recv_wr,
        place: CodeAddress,
    ) -> Kept {
        let Some(queue_pair) = hot(qp).ok().map(|obj| obj.qp.clone()) else { return Kept::Nothing };
        // SAFETY: the caller's promise.
        let requests = unsafe { receives(wr, place) };
        let number = queue_pair.number();
        let _alone = self.alone(number);
        let in_error = is_in_error(&queue_pair);
        let late = queue_pair.counters().naks_sent > 0;
        self.tell(|ledger| {
            if late {
                ledger.receive_was_late(number);
            }
            ledger.receiving(number, &requests, in_error, place);
        });
        Kept::Receive(Receiving { number, requests, place, _alone })
    }

    /// Receives were posted.
    fn received(&self, receiving: &Receiving, outcome: &CallOutcome) {
        let Receiving { number, requests, place, .. } = receiving;
        let result = outcome.code();
        if result != 0 {
            let taken = requests.iter().position(|r| r.at == outcome.refused).unwrap_or(0);
            let why = Refused { taken, full: result == libc::ENOMEM, why: failure::last() };
            self.tell(|ledger| ledger.received(*number, requests.len(), Some(&why), *place));
        }
    }
}

/// May the call wait for long?
fn waits(call: &Call<'_>) -> bool {
    match call.what() {
        What::CqEvent { .. } | What::AsyncEvent { .. } => true,
        What::Named { name, .. } => name.to_bytes().starts_with(b"ibv_de"),
        _ => false,
    }
}

/// The result of a call for an event.
fn result_of(outcome: &CallOutcome) -> Result<(), Errno> {
    if outcome.code() == 0 { Ok(()) } else { Err(Errno::from_raw(outcome.errno)) }
}

fn piece_of(sge: &ibv_sge) -> Piece {
    Piece { addr: sge.addr, length: sge.length, lkey: sge.lkey }
}

/// # Safety
/// `num` entries at `list`, if `num` is positive.
unsafe fn pieces(list: *const ibv_sge, num: c_int) -> Vec<Piece> {
    // SAFETY: the caller's promise.
    unsafe { slice(list, usize::try_from(num).unwrap_or(0)) }.iter().map(piece_of).collect()
}

/// A request, and the memory to which it writes, if its key is a key of this process.
///
/// # Safety
/// `wr` is a valid request of the program.
unsafe fn request_of(
    wr: &ibv_send_wr,
    queue_pair: &Qp,
    place: CodeAddress,
) -> (Request, Option<Piece>) {
    let has = |flag: u32| wr.send_flags & flag != 0;
    let reads = matches!(
        wr.opcode,
        IBV_WR_RDMA_READ | IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD
    );
    let without_data =
        has(IBV_SEND_INLINE) || matches!(wr.opcode, IBV_WR_LOCAL_INV | IBV_WR_BIND_MW);
    // SAFETY: the caller's promise.
    let pieces = if without_data { Vec::new() } else { unsafe { pieces(wr.sg_list, wr.num_sge) } };
    // SAFETY: plain words of the union; the opcode says which are set.
    let target = unsafe {
        let length = pieces.iter().fold(0_u32, |sum, p| sum.saturating_add(p.length));
        match wr.opcode {
            IBV_WR_ATOMIC_WRITE => {
                Some(Piece { addr: wr.wr.rdma.remote_addr, length: 8, lkey: wr.wr.rdma.rkey })
            }
            IBV_WR_RDMA_WRITE | IBV_WR_RDMA_WRITE_WITH_IMM => {
                Some(Piece { addr: wr.wr.rdma.remote_addr, length, lkey: wr.wr.rdma.rkey })
            }
            IBV_WR_ATOMIC_CMP_AND_SWP | IBV_WR_ATOMIC_FETCH_AND_ADD => {
                Some(Piece { addr: wr.wr.atomic.remote_addr, length: 8, lkey: wr.wr.atomic.rkey })
            }
            _ => None,
        }
    };
    let is_xrc = queue_pair.qp_type() == QpType::XrcSend;
    // SAFETY: a word of the union, which means nothing on other transports.
    let srq = if is_xrc { unsafe { wr.qp_type.xrc.remote_srqn } } else { 0 };
    let request = Request {
        srq,
        wr_id: wr.wr_id,
        at: core::ptr::from_ref(wr) as usize,
        signaled: queue_pair.signals_all() || has(IBV_SEND_SIGNALED),
        pieces,
        writes: reads,
        fenced: has(IBV_SEND_FENCE),
        sum: None,
        place,
    };
    (request, target)
}

/// # Safety
/// `wr` is a valid list of the program.
unsafe fn receives(wr: *mut ibv_recv_wr, place: CodeAddress) -> Vec<Request> {
    let request_of = |wr: &ibv_recv_wr| Request {
        wr_id: wr.wr_id,
        at: core::ptr::from_ref(wr) as usize,
        signaled: true,
        // SAFETY: the caller's promise.
        pieces: unsafe { pieces(wr.sg_list, wr.num_sge) },
        writes: true,
        place,
        ..Request::default()
    };
    // SAFETY: the caller's promise.
    unsafe { requests(wr) }.map(request_of).collect()
}

/// The meaning of a completion's status.
pub(super) fn status_name(status: ibv_wc_status) -> &'static str {
    let text = ibv_wc_status_str(status);
    // SAFETY: a constant string.
    unsafe { core::ffi::CStr::from_ptr(text) }.to_str().unwrap_or("a failure")
}
