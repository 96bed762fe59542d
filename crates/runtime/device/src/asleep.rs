//! Whether a program sleeps, and for what: the threads of a process as the kernel shows them.
//!
//! - [`call`] reads the texts of `/proc` and the arrays of `poll` and `select`, as values.
//! - [`judge`] decides from values whether a wake-up is lost (EXT-4).
//! - `process` reads the activity of this process's threads.
//!
//! The report of a lost wake-up, `adverb hunt` and `adverb run --check` share these.
pub mod call;
pub mod judge;
pub(crate) mod process;

pub use process::{is_ours, switches_in, threads};

#[cfg(all(test, not(loom)))]
mod tests;
