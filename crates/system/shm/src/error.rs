//! Errors of segments.

use std::io;

use thiserror::Error;

/// Why creating or opening a segment failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShmError {
    /// The machine or the control group has no memory for the pages.
    #[error("no memory for {bytes} bytes shared with another process")]
    OutOfMemory {
        /// Bytes requested.
        bytes: usize,
    },
    /// The peer's descriptor is not shared memory, or its seals allow changes of its size or pages.
    #[error(
        "the peer's descriptor is not sealed shared memory (seals {found:#x}, needed {expected:#x})"
    )]
    NotSealed {
        /// The required seals (`F_SEAL_*`).
        expected: i32,
        /// The seals found; 0 also for a file without support for seals.
        found: i32,
    },
    /// The peer's segment has a wrong size.
    #[error("the peer's shared memory has {found} bytes instead of {expected}")]
    WrongSize {
        /// The size of a segment of this kind, in bytes.
        expected: u64,
        /// The size found, in bytes.
        found: u64,
    },
    /// The peer's segment is of another kind, or of another version of this library.
    #[error(
        "the peer's shared memory starts with {found:#x} instead of {expected:#x}: another version of this library"
    )]
    WrongFormat {
        /// The first word of this kind and version.
        expected: u64,
        /// The first word found.
        found: u64,
    },
    /// Any other error of the operating system.
    #[error("could not {doing}: {source}")]
    Os {
        /// The failed operation.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// The other end of a ring wrote a value against the protocol. The ring is unusable from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the peer broke the ring shared with this process")]
pub struct Broken;
