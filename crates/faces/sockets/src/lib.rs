//! What a distribution's `librspreload.so` lacks for programs of today, preloaded in front of it by
//! `adverb run --sockets`.
//!
//! librspreload puts rsockets, which are streams over RDMA, in the place of a program's sockets:
//! each has a descriptor of `/dev/null` in the program, and `read`, `poll` and the like find the
//! rsocket behind it. It was written before `epoll`, `accept4` and flags in the type of a socket,
//! and those calls find `/dev/null`. Here they are made of the calls that it has:
//!
//! - [`open`]: `socket` with flags, `accept4`, `ioctl(FIONBIO)`, and what
//!   `_FORTIFY_SOURCE` makes of reading;
//! - [`close`]: `close` in children and in handlers of signals, `close_range`, `fclose`, `dup2`;
//! - [`control`]: `fcntl64`, `fstat`, and refusals of what would end in `/dev/null` unseen;
//! - [`wait`]: waits with a limit, `ppoll`, `select` and `pselect` by its `poll`;
//! - [`epoll`]: sets of `epoll` with its sockets in them.
//!
//! Datagram sockets stay the kernel's: datagram rsockets make address handles without a GRH, which
//! RoCE devices refuse.
#![allow(unsafe_code, reason = "functions in the place of the C library's")]

pub mod close;
pub mod control;
pub mod epoll;
mod next;
pub mod open;
mod theirs;
pub mod wait;

/// The names that the shared object defines.
pub const NAMES: &str = include_str!("names.txt");
