//! The C interface of NDKPI 1.2 to 2.1, `libndkpi.so.1`. The objects and function tables of
//! `include/ndkpi.h`, implemented over the provider `adverb_ndk`.
//!
//! - [`abi`]: Rust mirrors of the headers.
//! - [`objects`], [`kinds`]: the C objects, and the provider's objects behind them.
//! - [`calls`]: the functions in the tables, by object.
//! - [`adapters`], [`mdl`]: additional functions for programs in user space
//!   (`include/adverb_ndk.h`).
//! - [`guard`]: catches panics and wraps callbacks at the boundary to C.
//!
//! # What C promises
//!
//! Each entry point takes pointers from C. The `SAFETY:` lines of the entry points cite this list.
//!
//! 1. A pointer to an object is null, or points to memory that holds a header. If the header names
//!    a type, the memory holds an object of that type: open, recently closed, or a copy of an
//!    object. The memory stays valid while the call runs.
//! 2. A pointer to a value is null, or points to as much memory as the function's documentation
//!    says. Until the request has completed, only the call changes this memory. For arrays of a
//!    posting call, this holds until the call returns.
//! 3. A callback may be called from any thread with its context, as often as its documentation
//!    says.
//! 4. Memory in a memory descriptor stays mapped and readable until everything made from the
//!    descriptor has ended. If the request may write, the memory also stays writable. The provider
//!    checks only at first that the memory is mapped.
//!    first is checked.
#![allow(unsafe_code, reason = "the C ABI")]
#![warn(missing_docs)]
#![allow(non_snake_case, reason = "the exported names are those of the headers")]

pub mod abi;
pub mod adapters;
pub mod calls;
pub mod guard;
pub mod kinds;
pub mod mdl;
mod net;
pub mod objects;
pub mod status;
