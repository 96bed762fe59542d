//! The verbs machine, sans-IO.
//!
//! All decisions of queue pairs, completion queues, shared receive queues and key tables are made
//! here, as values. Packets, work requests and the time go in; packets to send, completions, events
//! and key operations come out. The crate has no clock, socket, thread, pointer or randomness
//! (`no_std` proves most of this). So the device, the simulator and the tests drive the same code.
//!
//! A host (the device) owns each object behind a lock of its own, and drives a queue pair like
//! this:
//!
//! 1. [`Qp::stage_send`], [`Qp::commit_sends`] and [`Qp::post_recv`] queue work.
//!    [`Qp::handle_packet`] takes packets from the link.
//! 2. The host calls [`Qp::poll_output`] until the answer is [`Output::Idle`]. It hands out packets
//!    (headers and a gather list, never payload) and key operations (bind, invalidate), which the
//!    host performs on the [`KeyTable`].
//! 3. [`Effects`] collects completions and events in order. The host moves them to the CQs and
//!    channels.
//! 4. [`Qp::poll_timeout`] says when to call [`Qp::handle_timeout`].
//!
//! The engine never owns a payload. [`Qp::poll_output`] names checked ranges, and the host copies
//! while it holds the lock of the keys. A received payload is placed through the [`Memory`] trait,
//! after all checks of the packet and before its acknowledgement or completion is queued.
//!
//! All interfaces for several requests at once are one mechanism (DEF-8): requests are *staged*,
//! and then *committed* in one step. This holds for chained posts, `ibv_wr_start` …
//! `ibv_wr_complete`, batches of the Rust API and deferred requests of NDKPI.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod attr;
pub mod catalogue;
pub mod cause;
mod clock;
pub mod completion;
pub mod cq;
pub mod effects;
pub mod keys;
pub mod memory;
pub mod packet;
pub mod qp;
pub mod room;
pub mod srq;
pub mod tags;
pub mod types;
pub mod wr;

pub use adverb_wire::Time;
pub use attr::{AddressVector, AttrError, AttrMask, QpAttr, QpCap};
pub use cause::Cause;
pub use clock::Clock;
pub use completion::{Completion, WcFlags, WcOpcode, WcStatus};
pub use cq::Cq;
pub use effects::{Counted, CountedOp, CqRef, Effects, QpEvent, Rendezvous, Unfit};
pub use keys::{FastReg, KeyOp, KeyTable};
pub use memory::{AtomicOp, Memory, MemoryFault, Range};
pub use packet::{Output, Packet, Transmit};
pub use qp::{AckOrder, Env, Qp, QpConfig, RecvSource};
pub use room::OutOfMemory;
pub use srq::Srq;
pub use types::*;
pub use wr::{Payload, PostError, RecvWqe, RecvWr, SendFlags, SendOp, SendWr, Sge};
