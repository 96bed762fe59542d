//! The C entry points, by object: exported functions (`ibv_…`), and the functions that contexts and
//! objects point to.
#![allow(clippy::missing_safety_doc, reason = "the contract is that of the verb's manual page")]
#![allow(clippy::too_many_arguments, reason = "the signatures are the header's")]

pub mod address;
pub mod ah;
pub mod alone;
pub mod async_event;
pub mod attributes;
pub mod buf;
pub mod builder;
mod caller;
pub mod comp_channel;
pub mod comp_cntr;
pub mod cq;
pub mod device;
pub mod dm;
pub mod dmabuf;
pub mod dmah;
pub mod extensions;
mod failure;
pub mod files;
pub mod flow;
mod held;
pub mod import;
pub mod mr;
pub mod mw;
mod neighbour;
pub mod notify;
pub mod observers;
mod order;
pub mod pd;
pub mod poll;
pub mod port;
pub mod post;
pub mod qp;
mod region;
mod setup;
pub mod srq;
pub mod tables;
pub mod tags;
pub mod ucma;
pub mod wq;
pub mod wr_api;
pub mod xrcd;

use crate::handles::{Handle, Live, live};
use adverb_device::Error;
use core::ffi::{c_char, c_int};
use core::sync::atomic::{AtomicU32, Ordering};

/// Logs why a call fails (the number alone would not tell), sets `errno`, and returns the same
/// number: callers read one or the other.
#[cold]
pub fn failed(call: &str, e: &Error) -> c_int {
    adverb_device::failed::tell(call, e);
    failure::note(e);
    crate::errno::code(e.errno())
}

/// Like [`failed`], for calls that return a pointer: sets `errno` and returns null.
#[cold]
pub fn failed_null<T>(call: &str, e: &Error) -> *mut T {
    crate::errno::null(failed(call, e))
}

/// Like [`failed`], for calls that return -1 and set `errno`.
#[cold]
pub fn failed_minus_one(call: &str, e: &Error) -> c_int {
    crate::errno::minus_one(failed(call, e))
}

/// The result of a call that returns 0 or an errno value.
#[inline]
pub fn done(call: &str, result: Result<(), adverb_device::Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => failed(call, &e),
    }
}

/// Like [`done`], for calls that return -1 and set `errno`.
#[inline]
pub fn done_minus_one(call: &str, result: Result<(), adverb_device::Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(e) => failed_minus_one(call, &e),
    }
}

/// Ends an object with `end`. Then the handle is dead.
pub fn end<H: Handle>(
    call: &str,
    handle: *mut H,
    end: impl FnOnce(&Live<H::Object>) -> Result<(), Error>,
) -> c_int {
    let ended = live(handle).and_then(Live::end).and_then(|object| {
        end(&object)?;
        object.finish();
        Ok(())
    });
    done(call, ended)
}

/// Refuses a field of the program with unknown bits. `field` ends in a verb.
///
/// # Errors
/// EINVAL.
pub fn only_bits<T: Into<u64>>(field: &str, value: T, known: T) -> Result<(), Error> {
    let (value, known) = (value.into(), known.into());
    match value & !known {
        0 => Ok(()),
        _ if known == 0 => {
            Err(Error::invalid(format!("{field} {value:#x}"), "no bits are defined"))
        }
        _ => Err(Error::invalid(format!("{field} {value:#x}"), "unknown bits are set")),
    }
}

/// A number of elements that the program passes as a signed number.
///
/// # Errors
/// EINVAL.
#[inline]
pub fn count_of(field: &str, value: c_int) -> Result<usize, Error> {
    usize::try_from(value)
        .map_err(|_| Error::invalid(format!("{field} is {value}"), "must not be negative"))
}

/// Writes to a place in the program, unless the program passed null.
///
/// # Safety
/// `to` is null or a valid place.
#[inline]
pub unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller's promise.
        unsafe { to.write(value) };
    }
}

/// Copies a text into a field of a C struct, shortened so that the terminating zero fits.
fn set_text(field: &mut [c_char], text: &str) {
    field.fill(0);
    let room = field.len() - 1;
    for (to, from) in field[..room].iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

/// Counts acknowledged events in a field of an object's structure, because programs read that
/// field.
///
/// # Safety
/// The field belongs to a handle that was given to the program.
unsafe fn acknowledged(field: *mut u32, events: u32) {
    // SAFETY: memory of handles is never unmapped. The access is atomic because several threads of
    // the program may acknowledge at the same time.
    unsafe { AtomicU32::from_ptr(field) }.fetch_add(events, Ordering::Relaxed);
}
