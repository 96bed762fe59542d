//! The drop-in `librdmacm.so.1`: connections by address, with rdma-core's names, versions and
//! layouts.
//!
//! The library makes the same requests as rdma-core's library. rdma-core sends requests to the
//! kernel's connection manager. This library passes typed structures ([`adverb_abi::rdma_user_cm`])
//! to `libibverbs.so.1`, which has the device.
//!
//! - [`abi`]: mirrors of the header's types.
//! - [`command`]: the interface for requests.
//! - [`verbs`]: calls of `libibverbs.so.1`, including the header's inline functions.
//! - [`device`]: each device is opened once, and ids share its context and protection domain.
//! - [`id`]: the object behind an `rdma_cm_id`.
//! - [`channel`], [`address`], [`connect`], [`event`], [`qp`], [`srq`], [`multicast`],
//!   [`endpoint`], [`options`], [`addrinfo`], [`resolve`]: the entry points, by subject.
//! - [`query`], [`confirm`]: the work for an id when an event is read.
//! - [`rsocket`]: names without function, so that programs bound to these names start.
//! - [`cancel`]: the frame of each call, in which a thread is cancelled only while it waits.
//! - [`exports`]: the table that binds each exported name to its version node.
#![allow(unsafe_code, reason = "the C ABI")]
#![allow(clippy::missing_safety_doc, reason = "the contract is that of the call's manual page")]

pub mod abi;
pub mod address;
pub mod addrinfo;
pub mod cancel;
pub mod channel;
pub mod command;
pub mod confirm;
pub mod connect;
pub mod device;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod exports;
pub mod id;
pub mod live;
pub mod multicast;
pub mod options;
pub mod qp;
pub mod query;
pub mod resolve;
pub mod rsocket;
pub mod srq;
pub mod verbs;
