//! A software RDMA device wholly in user space.
//!
//! [`device::list`] finds one device for each usable network interface; a [`Context`] of it makes the
//! objects of verbs. All contexts of a process share one [`Node`](node::Node): the sockets, the queue pairs by number,
//! the keys and the progress of it all. The C faces (`libibverbs.so.1`) and the command stand on this crate.
#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod buffer;
pub mod capture;
pub mod context;
pub mod cq;
pub mod device;
pub mod error;
mod event_queue;
pub mod fast_mr;
pub mod faults;
pub mod interfaces;
mod lanes;
pub mod mapping;
pub mod node;
pub mod pd;
pub mod qp;
pub mod srq;
mod sync;
mod uses;

pub use adverb_engine as engine;
pub use context::{AsyncEvent, Context, Element};
pub use cq::{ArmSite, CompChannel, Cq, Notify, Overlooked, Sink};
pub use device::Device;
pub use error::{Error, Why};
pub use fast_mr::{FastMr, Page};
pub use mapping::Mapping;
pub use nix::errno::Errno;
pub use pd::{Dm, Mr, Mw, Pd, Xrcd};
pub use qp::{Qp, QpInit};
pub use srq::Srq;
