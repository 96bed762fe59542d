//! Objects through the C entry points: what they answer, write and refuse.
#![allow(unsafe_code, reason = "it calls the C ABI")]
#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "every call here keeps the contract of its manual page: live handles, valid places"
)]
#[path = "../common/mod.rs"]
mod common;
mod devices;
mod domains;
mod events;
mod memory;
mod rig;
