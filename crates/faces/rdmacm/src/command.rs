//! The interface for requests: functions of `libibverbs.so.1` in place of `open`, commands and
//! `close` of `/dev/infiniband/rdma_cm`.

use core::ffi::{CStr, c_char, c_int};

use crate::error::{Errno, ErrnoResult};
use adverb_abi::rdma_user_cm::{Answer, Reply, Request, rdma_ucm_query};

/// Declares the functions. A panic strategy that aborts also aborts where a thread's cancellation
/// unwinds out of a "C-unwind" function, so there the functions are declared as "C".
macro_rules! declare {
    ($abi:literal) => {
        // Each function returns a negative errno value on failure. A thread in
        // `adverb_ucma_perform` may be cancelled while it waits for an event. So no value on its
        // stack may need a destructor.
        unsafe extern $abi {
            fn adverb_ucma_open(flags: c_int) -> c_int;
            fn adverb_ucma_perform(fd: c_int, request: *const Request, reply: *mut Reply) -> c_int;
            fn adverb_ucma_close(fd: c_int) -> c_int;
            fn adverb_ucma_event_at(place: usize) -> c_int;
            fn adverb_ucma_event_read();
            fn adverb_ucma_event_taken(owner: usize, event: usize, kind: u32);
            fn adverb_ucma_event_acknowledged(event: usize, place: usize) -> c_int;
            fn adverb_ucma_events_awaited(owner: usize, call: *const c_char);
        }
    };
}
#[cfg(panic = "unwind")]
declare!("C-unwind");
#[cfg(not(panic = "unwind"))]
declare!("C");

/// Reads an event. `place` is a call site of the program, at which a hunt (`adverb hunt`) may vary
/// the timing.
pub fn at_place<R>(place: usize, read: impl FnOnce() -> R) -> R {
    // SAFETY: any number is a valid place.
    let after = unsafe { adverb_ucma_event_at(place) } != 0;
    let event = read();
    if after {
        // SAFETY: the function takes no arguments.
        unsafe { adverb_ucma_event_read() };
    }
    event
}

/// The program gets an event, which counts for `owner`: an id or a membership. A check
/// (`adverb run --check`) then knows which events are not acknowledged.
pub fn event_taken(owner: usize, event: usize, kind: u32) {
    // SAFETY: the arguments are numbers.
    unsafe { adverb_ucma_event_taken(owner, event, kind) }
}

/// The program has acknowledged an event. `place` is the return address of its call, or 0 for an
/// event that the library acknowledges. With `true` a hunt (`adverb hunt`) has the event
/// overwritten.
pub fn event_acknowledged(event: usize, place: usize) -> bool {
    // SAFETY: the arguments are numbers.
    unsafe { adverb_ucma_event_acknowledged(event, place) != 0 }
}

/// A call waits for the acknowledgement of the events of `owner`.
pub fn events_awaited(owner: usize, call: &CStr) {
    // SAFETY: the string lives until the return.
    unsafe { adverb_ucma_events_awaited(owner, call.as_ptr()) }
}

/// Opens a channel and returns its descriptor.
pub fn open() -> ErrnoResult<c_int> {
    // SAFETY: the argument is a set of flags of open(2).
    let fd = unsafe { adverb_ucma_open(libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 { Err(Errno(-fd)) } else { Ok(fd) }
}

/// Closes a channel.
pub fn close(fd: c_int) {
    // SAFETY: the function refuses a descriptor of any other file.
    unsafe { adverb_ucma_close(fd) };
}

/// Performs a request without an answer.
pub fn perform(fd: c_int, request: Request) -> ErrnoResult {
    // SAFETY: the request sets no option, so no value can be missing.
    unsafe { perform_with_value(fd, &request) }.map(drop)
}

/// Performs a request and returns its answer.
pub fn ask<A: Answer>(fd: c_int, request: Request) -> ErrnoResult<A> {
    // SAFETY: the request sets no option, so no value can be missing.
    let reply = unsafe { perform_with_value(fd, &request) }?;
    A::of(reply).ok_or(Errno(libc::EIO))
}

/// Performs a query.
pub fn query<A: Answer>(fd: c_int, id: u32, option: u32) -> ErrnoResult<A> {
    ask(fd, Request::Query(rdma_ucm_query { response: 0, id, option }))
}

/// Performs a request.
///
/// # Safety
/// If the request sets an option, its address is null or points to a value of its length.
pub unsafe fn perform_with_value(fd: c_int, request: &Request) -> ErrnoResult<Reply> {
    let mut reply = Reply::None;
    // SAFETY: both pointers are valid until the call returns; the caller guarantees the value of an
    // option.
    match unsafe { adverb_ucma_perform(fd, request, &raw mut reply) } {
        0 => Ok(reply),
        error => Err(Errno(-error)),
    }
}
