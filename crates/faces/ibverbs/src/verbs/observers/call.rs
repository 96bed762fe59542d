//! Calls as instruments see them.
use crate::abi::*;
use crate::errno;
use adverb_device::engine::attr::Cut;
use adverb_device::engine::{Access, AttrMask, QpAttr};
use adverb_device::{AsyncEvent, CompChannel, Context, Cq, Element, Mr, Qp, Srq};
use core::ffi::{CStr, c_int};
use std::sync::Arc;

/// A call of the program.
pub struct Call<'a> {
    what: What<'a>,
    place: usize,
}

/// Which call it is, and what the program passes.
#[derive(Clone, Copy)]
pub enum What<'a> {
    /// `ibv_poll_cq`: completions are at `wc` when it has returned.
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
    /// `ibv_wr_start`. An instrument that wants the requests of the chain calls
    /// `wr_api::note` after it.
    StartChain { qp: *mut ibv_qp_ex },
    /// `ibv_wr_complete`. A chain that an instrument refuses is aborted.
    CompleteChain { qp: *mut ibv_qp_ex },
    /// `ibv_get_cq_event`: `channel` is none if the handle is that of no channel.
    CqEvent { handle: *mut ibv_comp_channel, channel: Option<&'a CompChannel> },
    /// `ibv_get_async_event`: `device` is none if the handle is that of no context.
    AsyncEvent { context: *mut ibv_context, event: *mut ibv_async_event, device: Option<&'a Context> },
    /// Any other function, with its arguments as words. Words that it does not have mean nothing.
    Named { name: &'a CStr, args: &'a [u64; 6] },
}

impl<'a> Call<'a> {
    /// A call that returns to this address; 0: not known.
    ///
    /// # Safety
    /// The pointers are what the program passed. They are valid, as the verb's manual page asks,
    /// until the call has returned.
    pub unsafe fn returning_to(return_address: usize, what: What<'a>) -> Call<'a> {
        Call { what, place: return_address.wrapping_sub(1) }
    }

    /// Which call it is.
    pub fn what(&self) -> What<'a> {
        self.what
    }

    /// An address in the instruction that calls.
    pub fn place(&self) -> usize {
        self.place
    }
}

/// What a call answers.
pub struct Outcome {
    /// What it returns, as a register has it.
    pub result: u64,
    /// `errno` after the plain call.
    pub errno: c_int,
    /// A post that fails: the address of the first request that was not taken.
    pub refused: usize,
    /// The event that was taken.
    pub taken: Taken,
}

/// An event that a call has taken.
pub enum Taken {
    /// None.
    Nothing,
    /// A completion event, of this queue.
    Completion(Arc<Cq>),
    /// An asynchronous event.
    Async(AsyncEvent, Element),
}

impl Outcome {
    /// A word, and `errno` as it is now.
    pub fn word(result: u64) -> Outcome {
        Outcome { result, errno: errno::last(), refused: 0, taken: Taken::Nothing }
    }

    /// A number.
    pub fn number(result: c_int) -> Outcome {
        Outcome::word(u64::from(result.cast_unsigned()))
    }

    /// The result of a post, and the first request that was not taken if the post failed.
    pub fn post<T>(result: c_int, refused: *mut T) -> Outcome {
        Outcome { refused: refused as usize, ..Outcome::number(result) }
    }

    /// An event was taken: 0.
    pub fn event(taken: Taken) -> Outcome {
        Outcome { taken, ..Outcome::number(0) }
    }

    /// The result as a number.
    pub fn code(&self) -> c_int {
        (self.result as u32).cast_signed()
    }

    /// Has the call another result.
    pub fn set_code(&mut self, code: c_int) {
        self.result = u64::from(code.cast_unsigned());
    }
}

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Channel,
    Cq,
    Domain,
    QueuePair,
    Region,
    Srq,
}

/// An object that has asynchronous events, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    Cq(u32),
    QueuePair(u32),
    Srq(u32),
}

/// What happened that is no call with a before and an after.
pub enum Event<'a> {
    /// An object was made, with the address that the program has.
    Made(Kind, usize),
    /// An object is gone.
    Ended(Kind, usize),
    /// A CQ was made, or has another size.
    Cq { cq: &'a Cq, ignores_overrun: bool },
    /// A CQ is gone.
    CqGone(u32),
    /// A shared receive queue is gone.
    SrqGone(&'a Srq),
    /// A queue pair was made, with these queues.
    QueuePair { qp: &'a Qp, send_cq: *mut ibv_cq, recv_cq: *mut ibv_cq, srq: *mut ibv_srq },
    /// A queue pair was modified.
    Modified { qp: &'a Qp, attr: &'a QpAttr, mask: AttrMask },
    /// The completions of a queue pair are counted: the pair may have none that are polled.
    Counted(&'a Qp),
    /// A queue pair is gone.
    QueuePairGone(u32),
    /// Values of a call lost their high bits.
    Cut(&'a [Cut]),
    /// A region was registered: address and length of the program's memory, if it is that.
    Registered { mr: &'a Mr, memory: Option<(u64, u64)>, iova: u64, access: Access },
    /// A region is about to be deregistered.
    Deregistering(&'a Mr),
    /// A region is gone.
    Deregistered(&'a Mr),
    /// Completion events are acknowledged.
    EventsAcknowledged(&'a Cq, u32),
    /// An asynchronous event is acknowledged.
    AsyncEventAcknowledged(&'a Element),
    /// An object is about to be destroyed: the call will wait for its events.
    Destroying(Numbered),
    /// The process forks. Nothing may be allocated or freed.
    Fork(Fork),
    /// The process ends by `exit`, `_exit` or `abort`, or a child of `vfork` does, in the memory of
    /// its parent. An instrument may change the status.
    Exit(&'a mut c_int),
}

/// A moment of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    Before,
    Parent,
    Child,
}
