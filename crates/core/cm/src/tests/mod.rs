//! Tests of the crate.
mod ends;
mod farewell;
mod limits;
mod mads;
mod network;
mod pair;
mod rules;
