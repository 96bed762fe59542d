//! Tests of the crate.
mod ends;
mod farewell;
mod limits;
mod mads;
mod pair;
mod rules;
