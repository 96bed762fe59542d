//! Tests of the crate.
mod ends;
mod limits;
mod mads;
mod network;
mod pair;
mod rules;
