//! Calls as seen by instruments.
use super::uninterrupted::Uninterrupted;
use crate::abi::*;
use crate::errno;
use crate::verbs::caller::{Caller, program_call};
use adverb_check::{Kind, Source};
use adverb_choice::Choice;
use adverb_device::engine::attr::Cut;
use adverb_device::engine::{Access, AttrMask, QpAttr};
use adverb_device::{AsyncEvent, CompChannel, Context, Cq, Element, Errno, Mr, Qp, Srq};
use core::ffi::{CStr, c_int};
use std::sync::Arc;
use std::time::Duration;

/// A call of the program.
pub struct Call<'a> {
    what: What<'a>,
    place: usize,
}

/// The call and its arguments.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// `ibv_poll_cq`: completions are at `wc` after the return.
    Poll { cq: *mut ibv_cq, wc: *mut ibv_wc },
    /// `ibv_start_poll`.
    StartPoll { cq: *mut ibv_cq_ex },
    /// `ibv_next_poll`.
    NextPoll { cq: *mut ibv_cq_ex },
    /// `ibv_req_notify_cq`.
    Arm { cq: *mut ibv_cq, solicited_only: bool },
    /// `ibv_post_send`.
    PostSend { qp: *mut ibv_qp, wr: *mut ibv_send_wr },
    /// `ibv_post_recv`.
    PostRecv { qp: *mut ibv_qp, wr: *mut ibv_recv_wr },
    /// `ibv_post_srq_recv`.
    PostSrqRecv { srq: *mut ibv_srq, wr: *mut ibv_recv_wr },
    /// `ibv_wr_start`. An instrument that needs the requests of the chain calls `wr_api::note`
    /// afterwards.
    StartChain { qp: *mut ibv_qp_ex },
    /// `ibv_wr_complete`. If an instrument refuses a chain, the chain is aborted.
    CompleteChain { qp: *mut ibv_qp_ex },
    /// `ibv_get_cq_event`. `channel` is `None` if the handle is invalid.
    CqEvent { handle: *mut ibv_comp_channel, channel: Option<&'a CompChannel> },
    /// `ibv_get_async_event`. `device` is `None` if the handle is invalid.
    AsyncEvent {
        context: *mut ibv_context,
        event: *mut ibv_async_event,
        device: Option<&'a Context>,
    },
    /// Any other function, with its arguments as words. Words beyond the function's arguments mean
    /// nothing.
    Named { name: &'a CStr, args: &'a [u64; 6] },
}

impl<'a> Call<'a> {
    /// A call of this caller.
    ///
    /// # Safety
    /// The pointers are the program's arguments. They are valid until the call has returned, as the
    /// verb's manual page requires. The caller is on the program's stack.
    pub unsafe fn of(caller: Caller, what: What<'a>) -> Call<'a> {
        // The loader's lock.
        let _part = Uninterrupted::begin();
        // SAFETY: the caller's promise.
        let place = unsafe { program_call(caller) };
        Call { what, place }
    }

    /// The call and its arguments.
    pub fn what(&self) -> What<'a> {
        self.what
    }

    /// An address in the calling instruction.
    pub fn place(&self) -> usize {
        self.place
    }
}

/// The outcome of a call.
pub struct CallOutcome {
    /// The result, as in a register.
    pub result: u64,
    /// `errno` after the plain call.
    pub errno: c_int,
    /// For a failed post: the address of the first request that was not accepted.
    pub refused: usize,
    /// The event taken.
    pub taken: Taken,
}

/// An event taken by a call.
pub enum Taken {
    /// No event.
    Nothing,
    /// A completion event of this queue.
    Completion(Arc<Cq>),
    /// An asynchronous event.
    Async(AsyncEvent, Element),
}

impl CallOutcome {
    /// An outcome with a word as result and the current `errno`.
    pub fn word(result: u64) -> CallOutcome {
        CallOutcome { result, errno: errno::last(), refused: 0, taken: Taken::Nothing }
    }

    /// An outcome with a number as result.
    pub fn number(result: c_int) -> CallOutcome {
        CallOutcome::word(u64::from(result.cast_unsigned()))
    }

    /// The outcome of a post, with the first request that was not accepted if the post failed.
    pub fn post<T>(result: c_int, refused: *mut T) -> CallOutcome {
        CallOutcome { refused: refused as usize, ..CallOutcome::number(result) }
    }

    /// The outcome of a call that took an event: 0.
    pub fn event(taken: Taken) -> CallOutcome {
        CallOutcome { taken, ..CallOutcome::number(0) }
    }

    /// The result as a number.
    pub fn code(&self) -> c_int {
        (self.result as u32).cast_signed()
    }

    /// Sets another result.
    pub fn set_code(&mut self, code: c_int) {
        self.result = u64::from(code.cast_unsigned());
    }
}

/// An event outside of calls with a before and an after.
pub enum Event<'a> {
    /// An object was made. The number is the program's address of the object.
    Made(Kind, usize),
    /// An object was destroyed.
    Ended(Kind, usize),
    /// A CQ was made, or resized.
    Cq { cq: &'a Cq, ignores_overrun: bool },
    /// A CQ was destroyed.
    CqDestroyed(u32),
    /// A shared receive queue was destroyed.
    SrqDestroyed(&'a Srq),
    /// A queue pair with these queues was made.
    QueuePair { qp: &'a Qp, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq },
    /// A queue pair was modified.
    Modified { qp: &'a Qp, attr: &'a QpAttr, mask: AttrMask },
    /// A completion counter was attached to a queue pair. Some completions may then never be
    /// polled.
    Counted(&'a Qp),
    /// A queue pair was destroyed.
    QueuePairDestroyed(u32),
    /// Values of a call lost their high bits.
    Cut(&'a [Cut]),
    /// A region was registered. `memory` has address and length, if the region is the program's
    /// memory.
    Registered { mr: &'a Mr, memory: Option<(u64, u64)>, iova: u64, access: Access },
    /// A region is about to be deregistered.
    Deregistering(&'a Mr),
    /// A region was deregistered.
    Deregistered(&'a Mr),
    /// Completion events are acknowledged.
    EventsAcknowledged(&'a Cq, u32),
    /// An asynchronous event is acknowledged.
    AsyncEventAcknowledged(&'a Element),
    /// An object is about to be destroyed. The call will wait for the acknowledgement of the events
    /// of these sources.
    Destroying(&'a [Source]),
    /// A connection of rdma_cm begins: the id, and the queue pair.
    Connecting { id: u32, queue_pair: u32 },
    /// The program has read an event of rdma_cm: the id, the number of the event, and its status.
    ConnectionEvent { id: u32, event: u32, status: i32 },
    /// The program has taken an event of rdma_cm: the id or membership that the event counts for,
    /// the address of the event, and its kind.
    ConnectionEventTaken { owner: usize, event: usize, kind: u32 },
    /// The program has acknowledged the event of rdma_cm at this address.
    ConnectionEventAcknowledged(usize),
    /// A call waits for the acknowledgement of the events of an id or a membership.
    ConnectionEventsAwaited { owner: usize, call: &'a str },
    /// A request to rdma_cm failed: the name of the program's call, and the error.
    ConnectionFailed { name: &'static str, error: Errno },
    /// A hunt has made a choice at a call at this place.
    Chosen { call: adverb_choice::Call, choice: Choice, place: usize },
    /// A wait on a descriptor of the device found nothing within its limit.
    WaitOver { call: &'static str, limit: Duration },
    /// The process forks. No memory may be allocated or freed.
    Fork(Fork),
    /// The process ends by `exit`, `_exit` or `abort`, or a child of `vfork` ends in its parent's
    /// memory. An instrument may change the status.
    Exit(&'a mut c_int),
}

/// A moment of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    Before,
    Parent,
    Child,
}
