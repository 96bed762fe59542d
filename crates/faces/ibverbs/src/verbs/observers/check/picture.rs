//! The picture of a failure: the program's calls and a hunt's choices as entries of the ledger, and
//! the last of them as lines for the hunt.
use super::calls::status_name;
use super::examiner::LOOKS;
use super::report::is_ours;
use super::{Call, CallOutcome, Check, Taken, What};
use crate::abi::*;
use crate::handles::{hot, session, this_thread};
use crate::objects::CqObj;
use crate::verbs::notify::name_code_with_path;
use crate::verbs::post::{WorkRequest, requests};
use adverb_check::{CodeAddress, PastCall, Source, ToldCall};
use adverb_device::{Element, Errno};
use core::ffi::c_int;
use std::borrow::Cow;
use std::collections::HashMap;

/// The result of a call in words.
type Words = Cow<'static, str>;

impl Check {
    /// Notes a call, or a choice of a hunt.
    pub(super) fn happened(
        &self,
        name: impl Into<Words>,
        queue: Option<Source>,
        place: CodeAddress,
        result: impl Into<Words>,
    ) {
        let call = PastCall {
            at: adverb_trace::now(),
            thread: nix::unistd::gettid().as_raw(),
            queue,
            call: name.into(),
            place,
            result: result.into(),
            times: 1,
        };
        self.tell(|ledger| ledger.happened(call));
    }

    /// Notes a call that has returned. `why`: the reason of a failed call.
    ///
    /// # Safety
    /// The program's arguments. The call has filled the number of places in its result.
    pub(super) unsafe fn has_returned(&self, call: &Call<'_>, outcome: &CallOutcome, why: &str) {
        let code = outcome.code();
        let (name, queue, result) = match call.what() {
            // SAFETY: the caller's promise.
            What::Poll { cq, wc } => ("ibv_poll_cq", cq_of(cq), unsafe { polled(wc, code) }),
            What::StartPoll { cq } => ("ibv_start_poll", cq_of(cq), presented(cq, code)),
            What::NextPoll { cq } => ("ibv_next_poll", cq_of(cq), presented(cq, code)),
            What::StartChain { .. } => return,
            What::Arm { cq, .. } => ("ibv_req_notify_cq", cq_of(cq), errno(code)),
            What::PostSend { qp, wr } => {
                // SAFETY: the program's list.
                ("ibv_post_send", qp_of(qp), unsafe { posted(code, wr) })
            }
            What::CompleteChain { qp } => ("ibv_wr_complete", qp_of(qp), errno(code)),
            What::PostRecv { qp, wr } => {
                // SAFETY: the program's list.
                ("ibv_post_recv", qp_of(qp), unsafe { posted(code, wr) })
            }
            What::PostSrqRecv { srq, wr } => {
                let queue = hot(srq).ok().map(|obj| Source::Srq(obj.srq.number()));
                // SAFETY: as above.
                ("ibv_post_srq_recv", queue, unsafe { posted(code, wr) })
            }
            What::CqEvent { .. } => match &outcome.taken {
                Taken::Completion(cq) => {
                    ("ibv_get_cq_event", Some(Source::Completion(cq.number())), "an event".into())
                }
                _ => ("ibv_get_cq_event", None, errno(outcome.errno)),
            },
            What::AsyncEvent { .. } => match &outcome.taken {
                Taken::Async(event, of) => {
                    ("ibv_get_async_event", source_of(of), format!("{event:?}").into())
                }
                _ => ("ibv_get_async_event", None, errno(outcome.errno)),
            },
            // Words for a status say nothing of the queues.
            What::Named { name, .. }
                if !name.to_bytes().ends_with(b"_str") && !is_ours(call.place()) =>
            {
                let name = name.to_string_lossy().into_owned();
                return self.happened(name, None, call.place(), why.to_owned());
            }
            What::Named { .. } => return,
        };
        self.happened(name, queue, call.place(), result);
    }

    /// Writes the last calls of each thread and on each queue, if this is a run of a hunt.
    pub(super) fn tell_picture(&self) {
        if self.ask.is_none() {
            return;
        }
        let picture = self.within(LOOKS, |known| Some(known.ledger.as_ref()?.picture()));
        let (mut places, mut threads) = (HashMap::new(), HashMap::new());
        let lines = picture.flatten().unwrap_or_default().into_iter().map(|call| {
            let place = places.entry(call.place).or_insert_with(|| name_code_with_path(call.place));
            let thread = threads.entry(call.thread).or_insert_with(|| thread_in_words(call.thread));
            let told = ToldCall {
                process: std::process::id(),
                at: call.at,
                times: call.times,
                thread: thread.clone(),
                queue: call.queue.map(|queue| queue.to_string()).unwrap_or_default(),
                call: call.call.into_owned(),
                place: place.clone(),
                result: call.result.into_owned(),
            };
            told.to_string()
        });
        let first = format!("calls {}", std::process::id());
        let lines: Vec<_> = std::iter::once(first).chain(lines).collect();
        self.say(&lines.join("\n"));
    }
}

/// The number and the name of a thread; only the number of a thread that has ended.
fn thread_in_words(id: i32) -> String {
    let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm"));
    name.map_or_else(|_| id.to_string(), |name| format!("{id} {:?}", name.trim_end()))
}

fn cq_of<T>(cq: *mut T) -> Option<Source> {
    hot(cq.cast::<ibv_cq>()).ok().map(|obj| Source::Completion(obj.cq.number()))
}

fn qp_of<T>(qp: *mut T) -> Option<Source> {
    hot(qp.cast::<ibv_qp>()).ok().map(|obj| Source::QueuePair(obj.qp.number()))
}

/// The object of an asynchronous event.
pub(super) fn source_of(element: &Element) -> Option<Source> {
    Some(match element {
        Element::Cq(cq) => Source::Cq(cq.number()),
        Element::Qp(qp) => Source::QueuePair(qp.number()),
        Element::Srq(srq) => Source::Srq(srq.number()),
        Element::Port(_) => return None,
    })
}

/// An error number as a name; nothing for 0.
fn errno(code: c_int) -> Words {
    if code == 0 { "".into() } else { format!("{:?}", Errno::from_raw(code)).into() }
}

fn count(n: usize, words: String) -> Words {
    if n == 1 { words.into() } else { format!("{words}, and {} more", n - 1).into() }
}

/// # Safety
/// `found` completions are at `wc`, if `found` is positive.
unsafe fn polled(wc: *mut ibv_wc, found: c_int) -> Words {
    let Ok(found) = usize::try_from(found) else { return "failed".into() };
    // SAFETY: the caller's promise.
    let all = (0..found).map(|i| unsafe { &*wc.add(i) });
    // A failure says most.
    let told = all.clone().find(|wc| wc.status != IBV_WC_SUCCESS).or_else(|| all.clone().next());
    told.map_or("empty".into(), |wc| count(found, completion(wc.wr_id, wc.qp_num, wc.status)))
}

fn presented(cq: *mut ibv_cq_ex, code: c_int) -> Words {
    if code == libc::ENOENT {
        return "empty".into();
    }
    let Some(obj) = session(cq, this_thread()).filter(|_| code == 0) else { return errno(code) };
    let obj: &CqObj = &obj;
    // SAFETY: between start and end this thread is the only user.
    match unsafe { (*obj.current.get()).as_ref() } {
        Some(c) => completion(c.wr_id, c.qpn, c.status as u32).into(),
        None => "".into(),
    }
}

fn completion(wr_id: u64, queue_pair: u32, status: ibv_wc_status) -> String {
    let status = if status == IBV_WC_SUCCESS { "" } else { status_name(status) };
    let comma = if status.is_empty() { "" } else { ", " };
    format!("wr_id {wr_id:#x} of {}{comma}{status}", Source::QueuePair(queue_pair))
}

/// # Safety
/// `first` is a valid list of the program.
unsafe fn posted<T: WorkRequest>(code: c_int, first: *mut T) -> Words {
    if code != 0 {
        return errno(code);
    }
    // SAFETY: the caller's promise.
    let mut all = unsafe { requests(first) };
    let first = all.next();
    first.map_or("".into(), |wr| count(1 + all.count(), format!("wr_id {:#x}", wr.wr_id())))
}
