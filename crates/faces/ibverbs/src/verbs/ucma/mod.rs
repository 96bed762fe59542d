//! `/dev/infiniband/rdma_cm`: open, requests and close of the file. Programs poll the descriptor
//! like the kernel's.
//!
//! A request has two forms, described once in [`abi::rdma_user_cm`](crate::abi::rdma_user_cm):
//! - Typed ([`adverb_ucma_perform`]): librdmacm.so.1 of the same build. The structures are read and
//!   written in place.
//! - Bytes ([`adverb_ucma_write`]): the system's librdmacm, through the preloaded object. The
//!   kernel copies the bytes and the memory to which they point, because an address may be any
//!   number.
mod callers;
mod reply;
mod request;
mod sockaddr;
#[cfg(test)]
mod tests;

use super::held::hold;
use super::observers::call::Event;
use super::observers::list::tell;
use crate::abi::rdma_user_cm::{Reply, Request};
use adverb_choice::{Call, Choice};
use adverb_device::Errno;
use adverb_os::Uncancelled;
use adverb_ucma::{Caller, Channel};
use callers::{Memory, Program, SystemLibrary, Typed};
use core::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

/// Performs a request at a file.
fn perform(
    channel: Arc<Channel>,
    request: &adverb_ucma::Request<'_>,
    caller: &mut dyn Caller,
) -> Result<(), Errno> {
    // A cancelled waiting thread runs no destructor. So `hold` keeps the count.
    let _uncancelled = Uncancelled::begin();
    hold(channel, |channel| channel.perform(request, caller))
}

/// Performs a request of the library's own librdmacm: 0, or a negative errno value.
///
/// "C-unwind", because a thread can be cancelled while GET_EVENT waits.
pub unsafe extern "C-unwind" fn adverb_ucma_perform(
    fd: c_int,
    request: *const Request,
    reply: *mut Reply,
) -> c_int {
    let Some(channel) = Channel::of_fd(fd) else { return -libc::EBADF };
    // SAFETY: librdmacm.so.1 of the same build passes both pointers and waits for the return.
    let (request, reply) = unsafe { (&*request, &mut *reply) };
    let performed = request::request(request)
        .and_then(|values| perform(channel, &values, &mut Typed { request, reply }));
    // Not a cancellation point: the event that was read would be lost.
    let _uncancelled = Uncancelled::throughout();
    observe(request, reply, performed.err());
    match performed {
        Ok(()) => 0,
        Err(e) => -(e as c_int),
    }
}

/// Tells the instruments what a request has done.
fn observe(request: &Request, reply: &Reply, error: Option<Errno>) {
    let name = match request {
        Request::Connect(_) => "rdma_connect",
        Request::Accept(_) => "rdma_accept",
        Request::BindIp(_) | Request::Bind(_) => "rdma_bind_addr",
        Request::ResolveIp(_) | Request::ResolveAddr(_) => "rdma_resolve_addr",
        Request::ResolveRoute(_) => "rdma_resolve_route",
        Request::Listen(_) => "rdma_listen",
        Request::GetEvent(_) => "rdma_get_cm_event",
        _ => return,
    };
    match (error, request, reply) {
        (Some(Errno::EAGAIN), ..) => {}
        (Some(error), ..) => tell(Event::ConnectionFailed { name, error }),
        (None, Request::Connect(body), _) => {
            tell(Event::Connecting { id: body.id, queue_pair: body.conn_param.qp_num });
        }
        (None, Request::Accept(body), _) => {
            tell(Event::Connecting { id: body.id, queue_pair: body.conn_param.qp_num });
        }
        (None, Request::GetEvent(_), Reply::Event(event)) => {
            let (id, status) = (event.id, event.status.cast_signed());
            tell(Event::ConnectionEvent { id, event: event.event, status });
        }
        _ => {}
    }
}

/// Opens the file: its descriptor, or a negative errno value. `flags` may contain `O_NONBLOCK` and
/// `O_CLOEXEC`.
pub extern "C" fn adverb_ucma_open(flags: c_int) -> c_int {
    let _uncancelled = Uncancelled::throughout();
    super::setup::init();
    if !adverb_reserve::is_ready() {
        return -libc::ENOMEM;
    }
    match Channel::open(flags) {
        Ok(channel) => {
            adverb_waits::register();
            channel.raw_fd()
        }
        Err(e) => {
            log::warn!("opening /dev/infiniband/rdma_cm: {e}");
            -e.errno()
        }
    }
}

/// Performs the command in `len` bytes at `buf`: the number of bytes taken, or a negative errno
/// value.
///
/// "C-unwind", because a thread can be cancelled while GET_EVENT waits.
pub unsafe extern "C-unwind" fn adverb_ucma_write(
    fd: c_int,
    buf: *const c_void,
    len: usize,
) -> isize {
    let Some(channel) = Channel::of_fd(fd) else { return -(libc::EBADF as isize) };
    match write(channel, buf as u64, len) {
        Ok(()) => len as isize,
        Err(e) => -(e as isize),
    }
}

fn write(channel: Arc<Channel>, address: u64, len: usize) -> Result<(), Errno> {
    // Bytes after the command are ignored.
    let mut command = [0; 512];
    const { assert!(Request::LONGEST <= 512) };
    let taken = len.min(command.len());
    Program.read(address, &mut command[..taken])?;
    let (request, room) = Request::decode(&command[..taken]).ok_or(Errno::EINVAL)?;
    let values = request::request(&request)?;
    let mut system = SystemLibrary { request: &request, room, memory: Program };
    system.check_room()?;
    perform(channel, &values, &mut system)
}

/// The program is about to read an event of a connection; `place` is the return address of its
/// call. With 1 the caller calls [`adverb_ucma_event_read`] after the read.
pub extern "C" fn adverb_ucma_event_at(place: usize) -> c_int {
    let _uncancelled = Uncancelled::throughout();
    adverb_hunt::read_connection_event_at(place.wrapping_sub(1)).into()
}

/// The event was read.
pub extern "C" fn adverb_ucma_event_read() {
    let _uncancelled = Uncancelled::throughout();
    adverb_hunt::read_connection_event();
}

/// The program gets the event of kind `kind` at the address `event`. The event counts for `owner`,
/// an id or a membership.
pub extern "C" fn adverb_ucma_event_taken(owner: usize, event: usize, kind: u32) {
    let _uncancelled = Uncancelled::throughout();
    tell(Event::ConnectionEventTaken { owner, event, kind });
}

/// The program has acknowledged the event at this address; `place` is the return address of its
/// call, or 0. With 1 the caller overwrites the event.
pub extern "C" fn adverb_ucma_event_acknowledged(event: usize, place: usize) -> c_int {
    let _uncancelled = Uncancelled::throughout();
    tell(Event::ConnectionEventAcknowledged(event));
    let spoils = |place| adverb_hunt::choice(Call::Acknowledge, place) == Some(Choice::Garbage);
    place.checked_sub(1).is_some_and(spoils).into()
}

/// The call with this name waits for the acknowledgement of the events of `owner`.
///
/// # Safety
/// `call` is a string that lives until the return.
pub unsafe extern "C" fn adverb_ucma_events_awaited(owner: usize, call: *const c_char) {
    let _uncancelled = Uncancelled::throughout();
    // SAFETY: the caller's promise.
    let call = unsafe { CStr::from_ptr(call) }.to_str().unwrap_or_default();
    tell(Event::ConnectionEventsAwaited { owner, call });
}

/// Closes the file and its descriptor: 0, or a negative errno value.
pub extern "C" fn adverb_ucma_close(fd: c_int) -> c_int {
    let _uncancelled = Uncancelled::throughout();
    match Channel::of_fd(fd) {
        Some(channel) => {
            channel.close();
            0
        }
        None => -libc::EBADF,
    }
}
