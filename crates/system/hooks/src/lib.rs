//! The functions of the device that the preloaded library calls.
//!
//! The preloaded library and the drop-in libraries are separate objects, perhaps of different
//! versions. The device registers a structure of functions with the preloaded library. Each
//! structure begins with its version, and the preloaded library refuses another version.
#![no_std]
#![forbid(unsafe_code)]

pub mod memory;
pub mod waits;
