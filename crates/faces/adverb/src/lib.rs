//! RDMA for Rust programs, in user space: queue pairs, registered memory, one-sided reads and
//! writes, atomics and completion events, over UDP, on any machine. No RDMA network card, no kernel
//! module, no root.
//!
//! ```
//! use adverb::testing::pair;
//!
//! # fn main() -> adverb::Result<()> {
//! // Two connected queue pairs in this process, each with its own device context.
//! let (a, b) = pair()?;
//!
//! // B lets its peer write into a buffer, and A does.
//! let board = b.pd.create_buffer(4096).remote_write().build()?;
//! a.qp.write("hello", board.remote()).post()?;
//! a.completion()?;
//! assert_eq!(board.to_vec(..5)?, b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # The objects
//!
//! | here | verbs | is |
//! |---|---|---|
//! | [`Device`], [`Context`] | `ibv_device`, `ibv_context` | a network interface as an RDMA device, opened |
//! | [`Pd`] | `ibv_pd` | a protection domain: what belongs together |
//! | [`Buffer`], [`BufSlice`], [`RemoteBuf`] | `ibv_mr`, `ibv_sge` | registered memory, a piece of it, a piece of the peer's |
//! | [`Mw`] | `ibv_mw` | a memory window: a key of its own to a piece of a buffer |
//! | [`Qp`], [`Batch`], [`Srq`], [`Ah`], [`Xrcd`] | `ibv_qp`, `ibv_wr_start`, `ibv_srq`, `ibv_ah`, `ibv_xrcd` | a queue pair and what it works with |
//! | [`Cq`], [`Completion`] | `ibv_cq`, `ibv_wc` | where requests complete |
//! | [`CompChannel`], [`CqEvent`] | `ibv_comp_channel` | how a program that sleeps hears of it |
//!
//! All of them are handles, cheap to clone, `Send` and `Sync`. An object ends with its last handle.
//! An object keeps the objects that it was made of, so handles may be dropped in any order.
//! `destroy` ends an object at once, or says what still uses it.
//!
//! # Memory
//!
//! The device and peers change registered memory at any time. So safe code never holds a reference
//! into it, and bytes are copied in and out of a [`Buffer`]. Dropping a buffer ends its
//! registration. Requests under way then fail with a protection error. The device does not touch
//! the memory, which may have another use by then. [`Pd::reg_raw`], the only unsafe function,
//! registers memory of the program. [`Pd::lend`] registers the program's memory for the length of a
//! call, which is safe.
//!
//! # Errors
//!
//! A call that is refused says why, with the values that explain the refusal ([`Error`]), and has
//! changed nothing. A request that fails completes with a status and a typed [`Cause`];
//! [`Completion::ok`] makes an [`Error`] of it. A connection that has failed flushes all requests
//! that are posted afterwards; [`Qp::reset`] makes the queue pair usable again.
//!
//! # Waiting
//!
//! Poll ([`Cq::poll`], [`Cq::drain`]), block ([`CompChannel::next_event`]), watch a descriptor
//! ([`CompChannel`] is `AsFd`), or `await` ([`CompChannel::event`], [`Cq::completions`]).
//! [`tutorial`] explains all of these. With [`AsyncQp`] the requests themselves are futures:
//! `qp.send("hello").await?`, which also waits for a free place when the queue is full. Without
//! futures, [`Request::post_within`] waits for a free place. A thread that waits or polls drives
//! the device itself. If no thread does, the background thread of the process drives the device.
//!
//! # Requests
//!
//! Each operation of a [`Qp`] makes a [`Request`]; `post()` posts it. Requests complete on the
//! queue pair's completion queue unless `signaled(false)`. Completions carry the request's `id`.
//!
//! ```
//! # use adverb::{Result, testing::pair};
//! # fn main() -> Result<()> {
//! # let (a, b) = pair()?;
//! # let (ours, theirs) = (a.buffer(64)?, b.buffer(64)?);
//! # b.qp.recv(()).post()?;
//! a.qp.read(ours.slice(..16), theirs.remote().slice(..16)).id(1).signaled(false).post()?;
//! a.qp.send(ours.slice(..16)).id(2).fence().solicited().inline().post()?;
//! # b.qp.recv(&theirs).post()?;
//! # a.cq.wait(adverb::testing::HANG_LIMIT)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! * `tokio`: channels on tokio's reactor, and connection setup without blocking, in
//!   `adverb::tokio`. `cargo doc --features tokio` shows the module. All other futures and streams
//!   of the crate run on tokio without this feature.
//! * `waits`: `epoll_wait` and `poll` of this program drive the device while they wait, so an event
//!   wakes one thread and not two. This concerns every reactor that calls the C library, such as
//!   tokio's. The crate's functions stand in front of the C library's, and change nothing in a
//!   program without an open device. Under `adverb run` the waits drive without this feature.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod ah;
mod async_event;
mod below;
mod buffer;
mod completion;
pub mod connect;
mod cq;
mod data;
mod device;
mod error;
mod handle;
mod mw;
mod pd;
mod qp;
mod raw;
mod sites;
mod srq;
pub mod testing;
/// From `ibv_req_notify_cq` to `async`: a tutorial.
#[doc = include_str!("../docs/from-req-notify-to-async.md")]
pub mod tutorial {}
#[cfg(feature = "tokio")]
pub mod tokio;
mod wakers;
mod xrc;

/// The device crate below this API: its types are the results of [`Qp::lower`] and similar methods.
pub use adverb_device as lower;
pub use adverb_device::engine::cause::Cause;
pub use adverb_device::engine::{
    Access, AttrMask, Gid, Key, Limits, PathMtu, QpAttr, QpState, QpType, WcOpcode, WcStatus,
};
pub use ah::{Ah, GRH_LEN};
pub use async_event::{AsyncElement, AsyncEvent, AsyncEventKind, AsyncEvents};
pub use buffer::{BufSlice, Buffer, BufferBuilder, LentSlice, RemoteBuf, Rights};
pub use completion::Completion;
pub use cq::{
    CompChannel, Completions, Cq, CqBuilder, CqEvent, Drain, LostWakeup, NextEvent, Notify,
};
pub use data::{Data, Slices};
pub use device::{Context, Device, Stats};
pub use error::{Error, Failure, Result};
pub use mw::{Mw, MwType, WindowRights};
pub use pd::Pd;
pub use qp::{
    AsyncQp, AsyncRequest, Batch, BatchError, InfoError, Performing, Placement, Posted, Posting,
    Qp, QpBuilder, QpInfo, Recv, Request,
};
pub use raw::Lent;
pub use srq::{Srq, SrqBuilder, SrqRecv};
pub use xrc::Xrcd;
