//! Text from outside: which file names are those of copies of the replaced libraries ([`copies`]),
//! and what is safe for a terminal ([`printable`]).
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod copies;
pub mod printable;
