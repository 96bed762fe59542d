//! Entry points that need no device.
#![allow(clippy::missing_safety_doc, reason = "the contract is that of the verb's manual page")]

pub mod fork;
pub mod marshal;
pub mod rate;
pub mod strings;
pub mod sysfs;

#[cfg(test)]
mod tests;
