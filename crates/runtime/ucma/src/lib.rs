//! rdma_cm ids in user space: the work of the Linux kernel's `ucma` and `cma` for librdmacm, for
//! programs without such a kernel.
//!
//! A program opens the device file, sends requests and polls. The file is readable exactly while an
//! event waits. [`World`] performs a [`Request`] and gives the [`Reply`] to the [`Caller`]. `World`
//! works over the connection manager [`adverb_cm`] and a [`Host`] to the machine; the tests
//! simulate the machine. [`Channel`] is an open file over the device's implementation of `Host`.
//! The C libraries translate their structures to these values, and the kernel's commands as well.
//! [`ids`] offers the same ids to the native API and NDKPI.
//!
//! Ids, events, states, attributes of queue pairs and error numbers equal Linux's, so a
//! distribution's librdmacm works over this crate. REQ and REP have the form of Linux peers:
//! service ids of ports, private data behind the header of IBTA annex A11, a CM response timeout of
//! 20, and 15 retries.
//!
//! Errors are errno values. EINVAL: the state of the id or a length does not allow the command, or
//! the id belongs to another file. ENOENT: no such id. ENODEV, EADDRNOTAVAIL, EADDRINUSE: errors of
//! addresses and ports. EAGAIN: no event waits. Errors of the caller (ENOSPC, EFAULT) are returned
//! unchanged. The log explains in words why a peer rejected a request, or may not have answered.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod attr;
mod bind;
mod channel;
mod commands;
mod connect;
mod event;
mod explain;
mod host;
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
pub use event::{Ah, Event, EventKind, PORT, Param};
pub use host::{Binding, Claim, Group, Host, Presence, Signal, Tokens};
pub use id::{PKEY, Route};
pub use param::ConnParam;
pub use request::{
    Addresses, Caller, FileId, OptionName, OptionValue, Path, QpAttr, Question, Reply, Request,
};
pub use world::{MAX_BACKLOG, World};
