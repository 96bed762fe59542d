//! Mirrors of the headers' types, under their names there. Those of `infiniband/verbs.h` are in
//! `adverb_abi`.
//!
//! Fields of objects that programs read and write while we hold references to them are cells.

#![allow(non_camel_case_types, reason = "the names are the header's")]

pub mod cma;
pub mod kernel;
