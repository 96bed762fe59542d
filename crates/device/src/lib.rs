//! A software RDMA device wholly in user space.
//!
//! [`device::list`] finds one device for each usable network interface; a [`Context`] of it makes
//! the objects of verbs. All contexts of a process share one [`Node`](node::Node): the sockets, the
//! queue pairs by number, the keys and the progress of it all. The C faces (`libibverbs.so.1`) and
//! the command stand on this crate.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod buffer;
pub mod capture;
pub mod catalogue;
pub mod comp_counter;
pub mod context;
pub mod cq;
mod descriptor;
pub mod device;
pub mod error;
mod event_queue;
pub mod fast_mr;
pub mod faults;
mod fd_mr;
pub mod interfaces;
mod lanes;
pub mod mad;
pub mod mapping;
mod memory;
pub mod multicast;
pub mod node;
pub mod pd;
mod ports;
pub mod qp;
pub mod raw;
mod rendezvous;
pub mod srq;
mod sync;
pub mod sysfs;
mod uses;

pub use adverb_engine as engine;
pub use comp_counter::{CompCounter, CounterType};
pub use context::{AsyncEvent, Context, Element};
pub use cq::{ArmSite, CompChannel, Cq, Notify, Overlooked, Sink};
pub use descriptor::Descriptor;
pub use device::Device;
pub use error::{Error, Why};
pub use event_queue::Tokens;
pub use fast_mr::{FastMr, Page};
pub use mapping::Mapping;
pub use memory::share_allocations;
pub use nix::errno::Errno;
pub use pd::{Dm, Mr, Mw, Pd, Xrcd};
pub use ports::PortState;
pub use qp::{Qp, QpInit};
pub use srq::Srq;
