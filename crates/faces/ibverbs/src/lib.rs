//! The drop-in `libibverbs.so.1`: rdma-core's names, versions and layouts on the Adverb device.
//!
//! - [`abi`]: mirrors of the header's types and constants.
//! - [`verbs`]: the entry points, by object, and the function tables of a context.
//! - [`handles`]: how the pointers programs pass become objects, or are refused.
//! - [`objects`]: what stands behind them.
//! - [`pure`]: entry points that need no device.
//! - [`exports`]: the table that binds each exported name to its version node.
#![allow(unsafe_code, reason = "the C ABI")]

pub use adverb_abi as abi;
pub mod errno;
pub mod exports;
pub mod handles;
pub mod listed;
pub mod objects;
pub mod pure;
pub mod verbs;
