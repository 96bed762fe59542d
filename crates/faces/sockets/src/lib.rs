//! Additions to a distribution's `librspreload.so` for current programs. `adverb run --sockets`
//! preloads this library in front of librspreload.
//!
//! librspreload replaces a program's sockets by rsockets, which are streams over RDMA. Each rsocket
//! has a descriptor of `/dev/null` in the program; `read`, `poll` and similar calls find the
//! rsocket behind the descriptor. Librspreload is older than `epoll`, `accept4` and flags in a
//! socket type, so these calls would use `/dev/null`. This library builds them from the calls that
//! librspreload has:
//!
//! - [`open`]: `socket` with flags, `accept4`, `ioctl(FIONBIO)`, and the read functions for
//!   `_FORTIFY_SOURCE`;
//! - [`close`]: `close` in children and in signal handlers, `close_range`, `fclose`, `dup2`;
//! - [`control`]: `fcntl64`, `fstat`, and errors for calls that would lose data in `/dev/null`;
//! - [`wait`]: waits with a timeout, `ppoll`, `select` and `pselect` by librspreload's `poll`;
//! - [`epoll`]: `epoll` sets with librspreload's sockets.
//!
//! Datagram sockets stay sockets of the kernel: datagram rsockets make address handles without a
//! GRH, which RoCE devices refuse.
//!
//! A function with the prefix `adverb_sockets_` takes the place of the function of the same name of
//! the C library, or of librdmacm (`build.rs`), and has the contract of that function.
#![allow(unsafe_code, reason = "functions in the place of the C library's")]
#![allow(clippy::missing_safety_doc, reason = "the contracts are those of the replaced functions")]

pub mod close;
pub mod control;
pub mod epoll;
mod next;
pub mod open;
mod theirs;
pub mod wait;
