//! The C entry points, by object: exported functions (`ibv_…`) and those that contexts and objects point to.
#![allow(clippy::missing_safety_doc, reason = "the contract is that of the verb's manual page")]
#![allow(clippy::too_many_arguments, reason = "the signatures are the header's")]

pub mod address;
pub mod ah;
pub mod async_event;
pub mod attributes;
pub mod buf;
pub mod comp_channel;
pub mod comp_cntr;
pub mod cq;
pub mod device;
pub mod dm;
pub mod extensions;
pub mod flow;
mod held;
pub mod import;
pub mod logging;
pub mod mr;
pub mod mw;
mod neighbour;
pub mod notify;
pub mod pd;
pub mod poll;
pub mod port;
pub mod post;
pub mod qp;
pub mod srq;
pub mod tables;
pub mod wr_api;
pub mod xrcd;

use core::ffi::c_int;

/// Says why a call fails (the errno alone would not) and answers the errno.
pub fn failed(call: &str, e: &adverb_device::Error) -> c_int {
    log::info!("{call} fails: {e}");
    e.errno()
}

/// As [`failed`], for calls that return a pointer: sets `errno` and answers null.
pub fn failed_null<T>(call: &str, e: &adverb_device::Error) -> *mut T {
    crate::errno::null(failed(call, e))
}

/// As [`failed`], for calls that return -1 and set `errno`.
pub fn failed_minus_one(call: &str, e: &adverb_device::Error) -> c_int {
    crate::errno::minus_one(failed(call, e))
}
