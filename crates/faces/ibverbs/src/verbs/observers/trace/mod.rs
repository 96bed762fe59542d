//! `adverb run --trace`: writes the program's calls to the trace part of this process
//! ([`adverb_trace`]).
mod data;
mod extended;
mod polls;

use super::call::{Call, CallOutcome, Event, Fork, Taken, What};
use super::observer::{Observer, When};
use crate::abi::*;
use crate::handles::{hot, session, this_thread};
use crate::verbs::notify::name_code;
use adverb_device::Qp;
use adverb_device::engine::{AttrMask, QpAttr};
use adverb_sync::{Mutex, MutexGuard};
use adverb_trace::{Record, Request, now, on, record, thread};
use core::ffi::c_int;
use polls::empty_polls_end;
use std::path::Path;
use std::sync::Once;

/// The trace, as an entry of the list.
pub struct Tracing;

/// State of the trace between `before` and `after` of a call.
pub enum Kept {
    /// The call is not recorded.
    Nothing,
    /// The start time of the call.
    Since(u64),
    /// The start time of a call on this completion queue.
    On(u64, u32),
    /// The start of a post.
    Post(Post),
}

/// A post under way. Other posts to the queue wait until this post has ended.
pub struct Post {
    began: u64,
    queue: Queue,
    requests: Vec<Request>,
    /// The program's addresses of the requests.
    at: Vec<usize>,
    _alone: MutexGuard<'static, ()>,
}

/// The queue of a post, by its number.
#[derive(Clone, Copy)]
enum Queue {
    Send(u32),
    Receive(u32),
    Shared(u32),
}

/// Locks for posting to a queue, so that the trace sees requests in order.
static POSTING: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

impl Post {
    /// Excludes other posts to the queue, and begins.
    fn begin(queue: Queue, requests: Vec<Request>, at: Vec<usize>) -> Kept {
        let (Queue::Send(number) | Queue::Receive(number) | Queue::Shared(number)) = queue;
        let _alone = POSTING[number as usize % POSTING.len()].lock();
        Kept::Post(Post { began: now(), queue, requests, at, _alone })
    }

    /// The post has returned.
    fn end(self, call: &'static str, outcome: &CallOutcome) {
        let (result, all) = (outcome.code(), self.requests.len());
        // A single bad request voids a chain. Requests of a chain have no addresses.
        let first_refused = || self.at.iter().position(|at| *at == outcome.refused).unwrap_or(0);
        let taken = if result == 0 { all } else { first_refused() };
        let (t, d, tid, call) = (self.began, now() - self.began, thread(), call.into());
        let requests = self.requests;
        let (qp, srq) = match self.queue {
            Queue::Send(qp) => {
                return record(&Record::Post { t, d, tid, call, qp, requests, taken, result });
            }
            Queue::Receive(qp) => (Some(qp), None),
            Queue::Shared(srq) => (None, Some(srq)),
        };
        record(&Record::Receive { t, d, tid, call, qp, srq, requests, taken, result });
    }
}

impl Observer for Tracing {
    type Kept = Kept;

    fn begin(&self, _: When) {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            if let Some(directory) =
                adverb_os::chosen(adverb_trace::VARIABLE).filter(|v| !v.is_empty())
            {
                adverb_trace::begin(Path::new(&directory));
            }
        });
    }

    fn is_on(&self) -> bool {
        on()
    }

    fn before(&self, call: &Call<'_>) -> Result<Kept, CallOutcome> {
        let t = now();
        let of = |cq: *mut ibv_cq| hot(cq).ok().map(|obj| Kept::On(t, obj.cq.number()));
        let kept = match call.what() {
            What::Poll { cq, .. } => of(cq),
            What::Arm { cq, .. } => {
                empty_polls_end();
                of(cq)
            }
            // SAFETY: the program's list of requests, valid during the call.
            What::PostSend { qp, wr } => unsafe { data::sends(qp, wr) },
            // SAFETY: as above.
            What::PostRecv { qp, wr } => unsafe { data::receives(qp, wr) },
            // SAFETY: as above.
            What::PostSrqRecv { srq, wr } => unsafe { data::shared_receives(srq, wr) },
            What::StartChain { .. } => None,
            // SAFETY: the program calls this between start and complete.
            What::CompleteChain { qp } => unsafe { extended::chain(qp) },
            What::StartPoll { .. }
            | What::NextPoll { .. }
            | What::CqEvent { .. }
            | What::AsyncEvent { .. }
            | What::Named { .. } => Some(Kept::Since(t)),
        };
        Ok(kept.unwrap_or(Kept::Nothing))
    }

    fn after(&self, call: &Call<'_>, outcome: &mut CallOutcome, kept: Kept) {
        match (call.what(), kept) {
            // SAFETY: the program's places. The call has filled the number of places in its result.
            (What::Poll { wc, .. }, Kept::On(t, cq)) => unsafe {
                data::polled(cq, wc, t, outcome.code())
            },
            (What::Arm { solicited_only, .. }, Kept::On(t, cq)) => {
                let (d, tid, call, result) =
                    (now() - t, thread(), "ibv_req_notify_cq".into(), outcome.code());
                record(&Record::Arm { t, d, tid, call, cq, solicited: solicited_only, result });
            }
            (What::PostSend { .. }, Kept::Post(post)) => post.end("ibv_post_send", outcome),
            (What::PostRecv { .. }, Kept::Post(post)) => post.end("ibv_post_recv", outcome),
            (What::PostSrqRecv { .. }, Kept::Post(post)) => post.end("ibv_post_srq_recv", outcome),
            // SAFETY: the chain is open.
            (What::StartChain { qp }, _) => unsafe { crate::verbs::wr_api::note(qp) },
            (What::CompleteChain { .. }, Kept::Post(post)) => post.end("ibv_wr_complete", outcome),
            (What::StartPoll { cq }, Kept::Since(t)) => {
                let queue = hot(cq).ok().map(|obj| obj.cq.number());
                // SAFETY: if the poll found a completion, this thread polls.
                unsafe { extended::polled(cq, queue, "ibv_start_poll", t, outcome.code()) }
            }
            (What::NextPoll { cq }, Kept::Since(t)) => {
                let queue = session(cq, this_thread()).map(|obj| obj.cq.number());
                // SAFETY: as above.
                unsafe { extended::polled(cq, queue, "ibv_next_poll", t, outcome.code()) }
            }
            (What::CqEvent { channel: Some(_), .. }, Kept::Since(t)) => event_taken(t, outcome),
            (What::AsyncEvent { context, event, .. }, Kept::Since(t)) => {
                let args = [context as u64, event as u64, 0, 0, 0, 0];
                called("ibv_get_async_event", args, t, outcome);
            }
            (What::Named { name, args }, Kept::Since(t)) => {
                called(name.to_str().unwrap_or_default(), *args, t, outcome);
            }
            _ => {}
        }
    }

    fn told(&self, event: &mut Event<'_>) {
        match *event {
            Event::Cq { cq, .. } => {
                record(&Record::Cq { t: now(), cq: cq.number(), entries: cq.capacity() });
            }
            Event::CqDestroyed(cq) => record(&Record::CqDestroyed { t: now(), cq }),
            Event::QueuePair { qp, send_cq, recv_cq, srq } => queue_pair(qp, send_cq, recv_cq, srq),
            Event::QueuePairDestroyed(qp) => record(&Record::QueuePairDestroyed { t: now(), qp }),
            Event::Modified { qp, attr, mask } => modified(qp, attr, mask),
            Event::Chosen { call, choice, place } => {
                empty_polls_end();
                record(&Record::Choice {
                    t: now(),
                    tid: thread(),
                    name: format!("{} {}", call.name(), choice.name()),
                    effect: choice.words(call).into(),
                    rule: choice.rule(call).into(),
                    place: name_code(place),
                });
            }
            Event::Fork(Fork::Child) => after_fork_child(),
            Event::Exit(_) => adverb_trace::finish(),
            _ => {}
        }
    }
}

fn after_fork_child() {
    adverb_trace::forked();
    for lock in POSTING.iter().filter(|lock| lock.is_locked()) {
        // SAFETY: the thread that held the lock does not exist in the child.
        unsafe { lock.force_unlock() };
    }
}

/// A function without a record type of its own has returned.
fn called(name: &str, args: [u64; 6], t: u64, outcome: &CallOutcome) {
    let d = now() - t;
    empty_polls_end();
    let (call, tid, result, errno) =
        (name.to_owned().into(), thread(), outcome.result, outcome.errno);
    record(&Record::Call { t, d, tid, call, args, result, errno });
}

/// An event of a CQ was taken, or the wait for an event failed with an errno.
fn event_taken(t: u64, outcome: &CallOutcome) {
    empty_polls_end();
    let (cq, errno): (_, c_int) = match &outcome.taken {
        Taken::Completion(cq) => (Some(cq.number()), 0),
        _ => (None, outcome.errno),
    };
    let (d, tid, call) = (now() - t, thread(), "ibv_get_cq_event".into());
    record(&Record::Taken { t, d, tid, call, cq, errno });
}

fn queue_pair(qp: &Qp, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq) {
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

fn modified(qp: &Qp, attr: &QpAttr, mask: AttrMask) {
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
