//! Tests of interoperation with Linux soft-RoCE (`rdma_rxe`), which runs in a virtual machine
//! (`scripts/vm`).
//!
//! One end of each pair is an unmodified program under `adverb run`, the other the same program on
//! `rxe0` in the machine, and both change places; so do the programs that connect by address, over
//! the kernel's connection manager and ours, and the kernel's iSER target is a peer. What rxe does
//! with itself is measured in the same run, so that the table of faults cannot grow stale.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod connections;
pub mod ends;
pub mod mads;
pub mod pair;
pub mod table;
pub mod vm;
