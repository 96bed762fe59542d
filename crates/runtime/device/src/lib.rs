//! A software RDMA device entirely in user space.
//!
//! [`device::list`] finds the devices of this machine. A [`Context`] of a device makes the objects
//! of verbs. All contexts of a process share a [`Node`](node::Node): the sockets,
//! the queue pairs by number, the keys and the progress. The C front ends (`libibverbs.so.1`) and
//! the command use this crate.
#![deny(unsafe_code)]
#![warn(missing_docs)]

mod acks;
pub mod async_event;
pub mod capture;
pub mod catalogue;
mod counts;
mod descriptor;
pub mod error;
mod event_list;
pub mod failed;
pub mod faults;
mod host;
pub mod interfaces;
pub mod logging;
pub mod mapping;
mod memory;
pub mod nic;
pub mod node;
mod objects;
mod own_id;
pub mod ranks;
pub mod selection;
pub mod snapshot;
pub use adverb_text::printable;
mod started;
mod sync;
mod uses;

pub use adverb_engine as engine;
pub use async_event::AsyncEvent;
pub use comp_counter::{CompCounter, CounterType};
pub use context::Context;
pub use cq::{ArmSite, CompChannel, Cq, LostWakeup, Notify, Sink};
pub use descriptor::Descriptor;
pub use device::Device;
pub use error::{Error, Why};
pub use event_list::Tokens;
pub use fast_mr::{FastMr, Page};
pub use mapping::Mapping;
pub use memory::share_allocations;
pub use nix::errno::Errno;
pub use node::{GidEntry, PortState};
pub use objects::{
    Element, buffer, comp_counter, context, cq, cuts, device, fast_mr, mad, multicast, pd, qp, raw,
    srq, sysfs, waits,
};
pub use own_id::own_id;
pub use pd::{Dm, Mr, Mw, Pd, Xrcd};
pub use qp::{Qp, QpInit};
pub use srq::Srq;
