//! Handles that are none: destroyed once or twice, of another kind, of another context, changed, or
//! never ours. Each gives EINVAL (or ENOENT), in the result and in `errno`, and nothing is read,
//! written, ended or waited for (CQN-10 for all kinds).
#![allow(unsafe_code, reason = "it calls the C ABI")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "the calls break the contract of their manual pages on purpose; the library must not mind"
)]
mod calls;
#[path = "../common/mod.rs"]
mod common;
mod dead;
mod mixed;
mod rig;
mod threads;
