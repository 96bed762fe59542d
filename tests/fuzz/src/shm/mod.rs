//! Memory shared by processes of one user, with a hostile writer: rings, tables, and descriptors of
//! another kind.
mod descriptor;
pub mod ring;
pub mod segments;
pub mod tables;
