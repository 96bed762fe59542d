//! What threads do, as the kernel shows it in `/proc`.
//!
//! - [`call`] reads the texts of `/proc` and the arrays of `poll` and `select`, as values.
//! - [`Process`] and [`Task`] read the files of a process's threads.
//! - [`ProcessLook`] and [`Stillness`] decide whether processes still move.
//! - [`look`] tells whether a thread of this process waits for a completion channel.
//!
//! The report of a lost wake-up, `adverb hunt`, `adverb run --check`, `--stuck-after`, and the
//! device's waits for another process share these.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod call;
mod channel;
mod look;
mod task;
#[cfg(test)]
mod tests;

pub use channel::{Channel, Doing, PAUSE, Thread, look};
pub use look::{Activity, Movement, ProcessLook, Stillness, ThreadLook};
pub use task::{Process, Status, Task, note_drive, note_end, note_wait};
