//! What can go wrong with a segment, in words.

use std::io;

use thiserror::Error;

/// Why a segment could not be made or opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ShmError {
    /// There is no memory for its pages: the machine's, or the control group's.
    #[error("no memory for {bytes} bytes shared with another process")]
    OutOfMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// What a peer sent is not a descriptor of shared memory, or its size or pages may still be
    /// changed.
    #[error("the peer's descriptor is not sealed shared memory (seals {found:#x}, needed {expected:#x})")]
    NotSealed {
        /// The seals it must have (`F_SEAL_*`).
        expected: i32,
        /// The seals it has; 0 also if it cannot have any.
        found: i32,
    },
    /// What a peer sent has another size.
    #[error("the peer's shared memory has {found} bytes instead of {expected}")]
    WrongSize {
        /// Bytes a segment of this kind has.
        expected: u64,
        /// Bytes it has.
        found: u64,
    },
    /// What a peer sent is another kind of segment, or that of another version of this library.
    #[error(
        "the peer's shared memory starts with {found:#x} instead of {expected:#x}: another version of this library"
    )]
    WrongFormat {
        /// The first word of this kind and version.
        expected: u64,
        /// Its first word.
        found: u64,
    },
    /// Any other error of the operating system.
    #[error("could not {doing}: {source}")]
    Os {
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// The other side of a ring wrote what no producer or consumer writes. The ring is of no use any
/// more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the peer broke the ring it shares with this process")]
pub struct Broken;
