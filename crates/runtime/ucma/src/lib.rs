//! rdma_cm ids behind the commands of `/dev/infiniband/rdma_cm`: what the Linux kernel's `ucma` and
//! `cma` do for librdmacm, for programs that have no such kernel.
//!
//! A program opens the device file, writes commands to it (`struct rdma_ucm_*` of `rdma_user_cm.h`,
//! ABI version 4) and polls it: it is readable just while an event waits. [`World`] performs the
//! commands: values go in and out, over the connection manager [`adverb_cm`] and a [`Door`] to the
//! machine, which the tests simulate. [`Channel`] is an open file over the device's own door.
//! [`ids`] are the same ids as values, for the native API and NDKPI.
//!
//! Ids, events, states, attributes of queue pairs and error numbers are those of Linux, so that a
//! distribution's librdmacm works over it, and REQ and REP are as Linux peers send them: service
//! ids of ports, private data behind the header of IBTA's annex A11, 20 as the CM response timeout,
//! 15 retries.
//!
//! Errors are errno values. EINVAL: the id's state or a length does not allow the command, or the
//! id is another file's. ENOENT: no such id. ENOSPC: too little room for the response. ENODEV,
//! EADDRNOTAVAIL, EADDRINUSE: of addresses and ports. EAGAIN: no event waits. EFAULT: memory that
//! is not there. Why a peer refused, or may not have answered, is in the log, in words.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod abi;
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
mod ports;
mod query;
mod receive;
mod world;

#[cfg(test)]
mod tests;

pub use abi::{ABI_VERSION, Command};
pub use channel::Channel;
pub use door::{Claim, Door, Group, Memory, Place, Presence, Signal, Tokens};
pub use event::EventKind;
pub use world::{FileId, MAX_BACKLOG, World};
