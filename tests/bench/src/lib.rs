//! What the measuring programs share: pairs of processes, and queue pairs on the loopback device.
//!
//! | program | what it shows |
//! |---|---|
//! | `limits` | what machine and kernel do without any RDMA |
//! | `wake` | completion events between two processes, beside eventfds and UDP |
//! | `chains` | requests posted one by one and deferred, with hand-overs and system calls |
//! | `armed` | ten million armed notifications, each accounted for |
//! | `idle` | what a thousand connected queue pairs cost that have nothing to do |
//! | `scale` | ten thousand connected queue pairs, and a mesh of processes: memory, latency, every byte verified |
//! | `table` | perftest on the wire path beside the limits, and what is above; writes BENCHMARKS.md |
//! | `local` | perftest between processes of one host beside shared memory and UCX; writes BENCHMARKS.md |
//! | `connect` | connections by address beside TCP; writes BENCHMARKS.md |
//! | `gigabyte` | a gigabyte under each fault, every byte checked, and how fast it came |
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cc;
pub mod crowd;
pub mod machine;
pub mod member;
pub mod pair;
pub mod procfs;
pub mod programs;
pub mod report;
pub mod rounds;
pub mod series;
pub mod world;

/// Errors are for a person to read.
pub type Result<T> = std::result::Result<T, String>;
