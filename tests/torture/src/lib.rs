//! The memory torture. The C program of `c/` takes random steps on memory, registers parts of the
//! memory, and lets other processes write to these parts by RDMA and by other means. The program
//! compares every byte with a model without knowledge of registration. The program uses Adverb from
//! outside, like any program under `adverb run`.
//!
//! `torture` runs the scenarios and then one seed after the other. `soak` checks what processes
//! leave behind.
//!
//! `c/scenarios.c` lists the scenarios, each with its requirement. MEM-1: growth, advice, waiters
//! and the time after the last deregistration. MEM-2: bounds, rights and a stopped writer. MEM-3:
//! other processes. MEM-4: vanished memory. MEM-5: memory that is returned. MEM-6: fork. MEM-7:
//! programs that hook `mmap`.
#![forbid(unsafe_code)]

pub mod allocators;
pub mod programs;
pub mod run;

/// The two paths between processes of one host: `ADVERB_PATH`.
pub const PATHS: [&str; 2] = ["local", "wire"];
