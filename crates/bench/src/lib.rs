//! What the measuring programs share: pairs of processes, and queue pairs on the loopback device.
//!
//! | program | what it shows |
//! |---|---|
//! | `limits` | what machine and kernel do without any RDMA |
//! | `wake` | completion events between two processes, beside eventfds and UDP |
//! | `chains` | requests posted one by one and deferred, with hand-overs and system calls |
//! | `armed` | ten million armed notifications, each accounted for |
//! | `gigabyte` | a gigabyte under each fault, every byte checked, and how fast it came |
//! | `table` | runs all of them and perftest, and writes BENCHMARKS.md |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod pair;
pub mod world;

/// Errors are for a person to read.
pub type Result<T> = std::result::Result<T, String>;
