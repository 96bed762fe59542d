//! Mirrors of the headers' types, under their names there.
//!
//! Fields of objects that programs read and write while we hold references to them are cells.

#![allow(non_camel_case_types, reason = "the names are the header's")]

pub mod cma;
pub mod kernel;
pub mod macros;
pub mod verbs;

/// Size and offsets of one type, for the comparison with the header.
#[derive(Debug)]
pub struct TypeLayout {
    /// The name in C.
    pub c_name: &'static str,
    /// Its size in bytes.
    pub size: usize,
    /// Name in C, offset and size of the fields.
    pub fields: &'static [(&'static str, usize, usize)],
}
