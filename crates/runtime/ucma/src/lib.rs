//! rdma_cm ids: what the Linux kernel's `ucma` and `cma` do for librdmacm, for programs that have
//! no such kernel.
//!
//! A program opens the device file, makes requests of it and polls it: the file is readable just
//! while an event waits. [`World`] performs a [`Request`], gives its [`Caller`] the [`Reply`], and
//! works over the connection manager [`adverb_cm`] and a [`Door`] to the machine, which the tests
//! simulate. [`Channel`] is an open file over the device's own door. The C libraries translate
//! between these values and their structures, and the kernel's commands as well. [`ids`] are the
//! same ids for the native API and NDKPI.
//!
//! Ids, events, states, attributes of queue pairs and error numbers are those of Linux, so that a
//! distribution's librdmacm works over it, and REQ and REP are as Linux peers send them: service
//! ids of ports, private data behind the header of IBTA's annex A11, 20 as the CM response timeout,
//! 15 retries.
//!
//! Errors are errno values. EINVAL: the id's state or a length does not allow the command, or the
//! id is another file's. ENOENT: no such id. ENODEV, EADDRNOTAVAIL, EADDRINUSE: of addresses and
//! ports. EAGAIN: no event waits. Errors of the caller (ENOSPC, EFAULT) come back as they are. Why
//! a peer refused, or may not have answered, is in the log, in words.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod attr;
mod bind;
mod channel;
mod commands;
mod connect;
mod door;
mod event;
mod explain;
mod id;
pub mod ids;
mod limited;
mod live;
mod mcast;
mod neighbour;
mod options;
mod param;
mod ports;
mod query;
mod receive;
mod request;
mod world;

#[cfg(test)]
mod tests;

pub use address::Address;
pub use adverb_cm::Ece;
pub use channel::Channel;
pub use door::{Claim, Door, Group, Place, Presence, Signal, Tokens};
pub use event::{Ah, Event, EventKind, PORT, Param};
pub use id::{PKEY, Route};
pub use param::ConnParam;
pub use request::{
    Addresses, Caller, FileId, OptionName, OptionValue, Path, QpAttr, Question, Reply, Request,
};
pub use world::{MAX_BACKLOG, World};
