//! Tests of interoperation with Linux soft-RoCE (`rdma_rxe`), which runs in a virtual machine
//! (`scripts/vm`).
//!
//! One end of each pair is an unmodified program under `adverb run`. The other end is the same
//! program on `rxe0` in the machine. Each test also runs with the ends exchanged. Programs that
//! connect by address do the same over the kernel's connection manager and Adverb's. The kernel's
//! iSER target is a peer as well. The results of rxe with itself are measured in the same run, so
//! that the table of faults stays up to date.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod connections;
pub mod ends;
pub mod mads;
pub mod pair;
pub mod table;
pub mod vm;
