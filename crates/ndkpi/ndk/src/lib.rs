//! A provider of NDKPI 1.2 to 2.1, the NetworkDirect kernel provider interface, in user space over
//! the Adverb device.
//!
//! The objects have NDKPI's names without their prefix, the methods those of its functions in snake
//! case: an [`Adapter`] makes [`Cq`]s and [`Pd`]s; a PD makes [`Mr`]s, [`Mw`]s, [`Srq`]s and
//! [`Qp`]s; connectors and listeners are in [`connect`]. Handles are cheap to clone.
//!
//! * A request that may complete later answers [`Outcome::Done`] or [`Outcome::Pending`], and takes
//!   the completion to be called in the second case; a failure is an [`NtStatus`], in line or
//!   through the completion (NDK-7). [`Config::pending`] says which, so that a consumer can be
//!   tested on both ways.
//! * An object is ended by `close`, not by dropping its handles. [`object`] says what a close waits
//!   for.
//! * Callbacks run on two threads of the adapter, never under a lock. They must not block for long:
//!   callbacks of other queues wait behind them. Preferred processors (`Affinity`) are a hint that
//!   is not taken.
//! * Initiator requests with [`OpFlags::DEFER`] are staged on the queue pair and handed over
//!   together by the request that ends the chain (DEF-1 … DEF-8); see [`Qp`].
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod adapter;
pub mod connect;
mod cq;
mod dispatch;
mod flags;
#[doc(hidden)]
pub mod fuzzing;
mod info;
pub mod joined;
mod lam;
mod mdl;
mod mr;
mod mw;
pub mod object;
mod pd;
mod qp;
mod requests;
mod results;
mod sge;
mod srq;
mod status;
mod version;
mod versioned;

pub use adapter::{Adapter, Config};
pub use cq::Cq;
pub use dispatch::PendingMode;
pub use flags::{AdapterFlags, MrFlags, NotifyType, ObjectType, OpFlags, OperationType};
pub use info::{AdapterInfo, MAX_CALLEE_DATA, MAX_CALLER_DATA, RdmaTechnology};
pub use lam::{Lam, LogicalAddress, PAGE_SIZE};
pub use mdl::Mdl;
pub use mr::Mr;
pub use mw::Mw;
pub use object::Outcome;
pub use pd::Pd;
pub use qp::{Invalidated, Qp, QpSizes};
pub use results::{NdkResult, NdkResultEx};
pub use sge::Sge;
pub use srq::{Srq, SrqNotification};
pub use status::NtStatus;
pub use version::Version;
pub use versioned::Versioned;

/// The device below, for [`device::Mapping`] and for opening adapters.
pub use adverb_device as device;
