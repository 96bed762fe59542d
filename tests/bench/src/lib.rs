//! Shared parts of the benchmark programs: pairs of processes, and queue pairs on the loopback
//! device.
//!
//! | program | measures |
//! |---|---|
//! | `limits` | the machine and its kernel without RDMA |
//! | `wake` | completion events between two processes, compared with eventfds and UDP |
//! | `chains` | requests posted one by one and deferred, with hand-overs and system calls |
//! | `idle` | the cost of a thousand connected queue pairs without traffic |
//! | `places` | perftest, UCX over tcp and the lean program between two network namespaces; in half a processor, on one, and two pairs at once |
//! | `table` | perftest on the wire path compared with the limits and UCX over tcp, and the programs above; writes BENCHMARKS.md |
//! | `local` | perftest between processes of one host compared with shared memory and UCX; writes BENCHMARKS.md |
//! | `connect` | connections by address compared with TCP; writes BENCHMARKS.md |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cc;
pub mod crowd;
pub mod ends;
pub mod items;
pub mod lean;
pub mod machine;
pub mod member;
pub mod message_test;
pub mod pair;
pub mod places;
pub mod procfs;
pub mod programs;
pub mod report;
pub mod rounds;
pub mod series;
pub mod ucx;
pub mod world;

/// Errors are texts for people.
pub type Result<T> = std::result::Result<T, String>;
