//! The memory torture: the C program of `c/` takes random steps on its memory, registers parts of
//! it, lets others write to them by RDMA and past it, and compares every byte with a model that
//! knows nothing of registration. It sees the product from outside, as any program under `adverb
//! run` does.
//!
//! `torture` runs its scenarios and then seed after seed; `soak` looks at what processes leave
//! behind.
//!
//! The scenarios are listed in `c/scenarios.c`, each with the requirement it shows: growth, advice,
//! waiters and what comes after the last deregistration (MEM-1), bounds, rights and a stopped
//! writer (MEM-2), other processes (MEM-3), memory that has vanished (MEM-4), memory that goes back
//! (MEM-5), fork (MEM-6), programs that hook `mmap` (MEM-7).
#![forbid(unsafe_code)]

pub mod allocators;
pub mod programs;
pub mod run;

/// The two ways between processes of one host: `ADVERB_PATH`.
pub const PATHS: [&str; 2] = ["local", "wire"];
