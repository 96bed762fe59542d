//! The door through which commands go: three functions of `libibverbs.so.1` that take the place of
//! `open`, `write` and `close` of `/dev/infiniband/rdma_cm`.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use crate::abi::kernel::*;
use crate::error::{Errno, Outcome};
use adverb_abi::ib_uverbs_qp_attr;

// Each returns a negative errno value on failure. A thread that waits for an event in
// `adverb_ucma_write` can be cancelled: nothing on the way there may need its destructor.
unsafe extern "C-unwind" {
    fn adverb_ucma_open(flags: c_int) -> c_int;
    fn adverb_ucma_write(fd: c_int, request: *const c_void, size: usize) -> isize;
    fn adverb_ucma_close(fd: c_int) -> c_int;
    fn adverb_ucma_event_at(place: usize) -> c_int;
    fn adverb_ucma_event_read();
}

/// A command's body.
///
/// # Safety
/// `NUMBER` is the command of this body, and if the type has an answer, [`Asks::answer_at`] names
/// where it goes.
pub unsafe trait Command: Copy {
    /// `RDMA_USER_CM_CMD_*`.
    const NUMBER: u32;
}

/// A command that is answered.
///
/// # Safety
/// `Answer` is the type that the command writes, and every pattern of bytes is a value of it.
pub unsafe trait Asks: Command {
    /// What is written.
    type Answer;

    /// Says where the answer goes.
    fn answer_at(&mut self, address: u64);
}

macro_rules! commands {
    ($($number:literal $body:ident $(-> $answer:ident)?),* $(,)?) => { $(
        // SAFETY: numbers and bodies of rdma_user_cm.h.
        unsafe impl Command for $body { const NUMBER: u32 = $number; }
        $(
            // SAFETY: the answers of rdma_user_cm.h, which hold integers alone.
            unsafe impl Asks for $body {
                type Answer = $answer;
                fn answer_at(&mut self, address: u64) {
                    self.response = address;
                }
            }
        )?
    )* };
}

commands! {
    0 CreateId -> Handle, 1 DestroyId -> EventsReported, 4 ResolveRoute, 6 Connect, 7 Listen, 8 Accept, 9 Reject,
    10 Disconnect, 11 InitQpAttr -> ib_uverbs_qp_attr, 12 GetEvent -> Event, 14 SetOption, 15 Notify, 18 MigrateId -> EventsReported,
    20 Bind, 21 ResolveAddr, 22 JoinMcast -> Handle, 23 ResolveIbService, 24 WriteCmEvent,
}

/// A command as it is written.
#[repr(C)]
struct Message<C> {
    number: u32,
    size: u16,
    room: u16,
    body: C,
}

/// Reads an event, at a place of the program's that a hunt may choose (`adverb hunt`).
pub fn at_place<R>(place: usize, read: impl FnOnce() -> R) -> R {
    // SAFETY: any number is a place.
    let after = unsafe { adverb_ucma_event_at(place) } != 0;
    let event = read();
    if after {
        // SAFETY: it takes nothing.
        unsafe { adverb_ucma_event_read() };
    }
    event
}

/// Opens a channel and returns its descriptor.
pub fn open() -> Outcome<c_int> {
    // SAFETY: flags of open(2).
    let fd = unsafe { adverb_ucma_open(libc::O_RDWR | libc::O_CLOEXEC) };
    if fd < 0 { Err(Errno(-fd)) } else { Ok(fd) }
}

/// Closes a channel.
pub fn close(fd: c_int) {
    // SAFETY: a descriptor; one that is no channel's is refused.
    unsafe { adverb_ucma_close(fd) };
}

/// Performs a command that has no answer.
pub fn perform<C: Command>(fd: c_int, body: C) -> Outcome {
    // SAFETY: nothing is written for it.
    unsafe { write(fd, body, 0) }
}

/// Performs a command and returns its answer; what it leaves out stays as in `answer`.
pub fn ask<C: Asks>(fd: c_int, mut body: C, answer: C::Answer) -> Outcome<C::Answer> {
    let mut answer = answer;
    body.answer_at((&raw mut answer).expose_provenance() as u64);
    // SAFETY: the answer has the type of the command and outlives the call.
    unsafe { write(fd, body, size_of::<C::Answer>() as u16) }?;
    Ok(answer)
}

/// Performs a query.
///
/// # Safety
/// `T` is what the option answers, and every pattern of bytes is a value of it.
pub unsafe fn query<T>(fd: c_int, id: u32, option: u32) -> Outcome<T> {
    // The kernel leaves out what it does not know; all ones is no device's index.
    let mut answer = MaybeUninit::<T>::zeroed();
    let body = Query { response: answer.as_mut_ptr().expose_provenance() as u64, id, option };
    // SAFETY: the caller vouches for the type; it outlives the call, and zeros are a value of it.
    unsafe {
        write(fd, body, size_of::<T>() as u16)?;
        Ok(answer.assume_init())
    }
}

// SAFETY: number and body of rdma_user_cm.h; the answer depends on the option, so only `query`
// sends it.
unsafe impl Command for Query {
    const NUMBER: u32 = 19;
}

/// Writes one command.
///
/// # Safety
/// The body names room of `room` bytes for its answer, or the command has none.
unsafe fn write<C: Command>(fd: c_int, body: C, room: u16) -> Outcome {
    let message = Message { number: C::NUMBER, size: size_of::<C>() as u16, room, body };
    let size = size_of::<Message<C>>();
    // SAFETY: a command with its header, which live until the call returns; the caller vouches for
    // the rest.
    let written = unsafe { adverb_ucma_write(fd, (&raw const message).cast(), size) };
    match usize::try_from(written) {
        Ok(n) if n == size => Ok(()),
        Ok(_) => Err(Errno(libc::ENODATA)),
        Err(_) => Err(Errno(c_int::try_from(-written).unwrap_or(libc::EIO))),
    }
}
