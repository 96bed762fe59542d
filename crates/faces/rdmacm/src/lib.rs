//! The drop-in `librdmacm.so.1`: connections by address, with rdma-core's names, versions and
//! layouts.
//!
//! It makes the same requests as rdma-core's library makes of the kernel's connection manager, but
//! as typed structures ([`adverb_abi::rdma_user_cm`]) and of `libibverbs.so.1`, which has the
//! device.
//!
//! - [`abi`]: mirrors of the header's types.
//! - [`command`]: the one door through which requests go.
//! - [`verbs`]: what is called in `libibverbs.so.1`, the header's inline functions included.
//! - [`device`]: each device is opened once; ids share its context and its protection domain.
//! - [`id`]: what stands behind an `rdma_cm_id`.
//! - [`channel`], [`address`], [`connect`], [`event`], [`qp`], [`srq`], [`multicast`],
//!   [`endpoint`], [`options`], [`addrinfo`], [`resolve`]: the entry points, by subject.
//! - [`event_object`], [`event_name`], [`query`], [`confirm`], [`services`]: what events are made
//!   of, and what is done for an id when one is read.
//! - [`rsocket`]: names that exist so that programs bound to them start.
//! - [`exports`]: the table that binds each exported name to its version node.
#![allow(unsafe_code, reason = "the C ABI")]

pub mod abi;
pub mod address;
pub mod addrinfo;
pub mod channel;
pub mod command;
pub mod confirm;
pub mod connect;
pub mod device;
pub mod endpoint;
pub mod error;
pub mod event;
pub mod event_name;
pub mod event_object;
pub mod exports;
pub mod id;
pub mod live;
pub mod multicast;
pub mod options;
pub mod qp;
pub mod query;
pub mod resolve;
pub mod rsocket;
pub mod services;
pub mod srq;
pub mod verbs;
