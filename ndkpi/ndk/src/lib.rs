//! A provider of NDKPI 1.2 to 2.1, the NetworkDirect kernel provider interface, in user space over
//! the Adverb device.
//!
//! The objects have NDKPI's names without the prefix. The methods have the names of NDKPI's
//! functions in snake case. An [`Adapter`] makes [`Cq`]s and [`Pd`]s. A PD makes [`Mr`]s, [`Mw`]s,
//! [`Srq`]s and [`Qp`]s. Connectors and listeners are in [`connect`]. Handles are cheap to clone.
//!
//! * A request that may complete later returns [`RequestOutcome::Done`] or
//!   [`RequestOutcome::Pending`]. In the second case, the completion is called. A failure is an
//!   [`NtStatus`], in line or through the completion (NDK-7). [`Config::pending`] selects the way,
//!   so that a consumer can be tested with both.
//! * An object is ended by `close`, not by dropping its handles. [`object`] says what a close waits
//!   for.
//! * Callbacks run on two threads of the adapter, never under a lock. They must not block for long,
//!   because callbacks of other queues wait behind them. Preferred processors (`Affinity`) are a
//!   hint that the provider ignores.
//! * Initiator requests with [`OpFlags::DEFER`] are staged on the queue pair. The request that ends
//!   the chain commits them together (DEF-1 … DEF-8); see [`Qp`].
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
pub use object::RequestOutcome;
pub use pd::Pd;
pub use qp::{Invalidated, Qp, QpSizes};
pub use results::{NdkResult, NdkResultEx};
pub use sge::Sge;
pub use srq::{Srq, SrqNotification};
pub use status::NtStatus;
pub use version::Version;
pub use versioned::Versioned;

/// The device below the provider, for [`device::Mapping`] and for opening adapters.
pub use adverb_device as device;
