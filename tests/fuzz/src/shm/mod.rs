//! What processes of one user share, written by one that is hostile: rings, tables, and descriptors
//! that are something else.
mod descriptor;
pub mod ring;
pub mod segments;
pub mod tables;
