//! The C face of NDKPI 1.2 to 2.1, `libndkpi.so.1`: the objects and tables of functions of
//! `include/ndkpi.h` on the provider `adverb_ndk`.
//!
//! - [`abi`]: mirrors of the headers.
//! - [`objects`], [`kinds`]: the C objects and what stands behind them.
//! - [`calls`]: the functions in the tables, by object.
//! - [`adapters`], [`mdl`]: what a program in user space needs beside them
//!   (`include/adverb_ndk.h`).
//! - [`guard`]: panics and callbacks at the edge.
//!
//! # What C promises
//!
//! Each entry point takes pointers from C; its `SAFETY:` lines cite this list.
//!
//! 1. A pointer to an object is null, or points to memory that holds a header and, if that names a
//!    type, an object of that type (open, closed not long ago, or a copy of one), and stays while
//!    the call runs.
//! 2. A pointer to a value is null, or points to as much memory as the function's page says, which
//!    stays unchanged but for the call until the request has completed (arrays of a posting call:
//!    until the call returns).
//! 3. A callback may be called, from any thread, with the context that came with it, as often as
//!    its page says.
//! 4. Memory that a memory descriptor describes stays mapped, readable and (where the request may
//!    write) writable until everything made from the descriptor has ended. Whether it is mapped at
//!    first is checked.
#![allow(unsafe_code, reason = "the C ABI")]
#![warn(missing_docs)]
#![allow(non_snake_case, reason = "the exported names are those of the headers")]

pub mod abi;
pub mod adapters;
pub mod calls;
pub mod guard;
pub mod kinds;
mod logging;
pub mod mdl;
mod net;
pub mod objects;
pub mod status;
