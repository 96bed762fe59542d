//! Untrusted bytes against every parser.
//!
//! Each target is a function that takes any bytes and panics when something is wrong. A fuzzer
//! drives the targets (`fuzz/`, `make fuzz TARGET=wire SECONDS=3600`). The tests here run them over
//! the committed corpus, and over random and spoiled inputs, on the stable toolchain and without a
//! fuzzer. So each problem found once is checked forever.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod cm;
pub mod greeting;
pub mod input;
pub mod link;
pub mod queue_pair;
pub mod runs;
pub mod shm;
pub mod snapshot;
pub mod text;
pub mod wire;

/// A target.
pub type FuzzTarget = fn(&[u8]);

/// All targets, by the names of their directories in `fuzz/corpus`.
pub const TARGETS: &[(&str, FuzzTarget)] = &[
    ("wire", wire::run),
    ("handle_packet", queue_pair::run),
    ("runs", runs::run),
    ("datagram", link::datagram),
    ("hand_over", link::hand_over),
    ("fault_spec", text::run),
    ("cm", cm::run),
    ("greeting", greeting::run),
    ("ring", shm::ring::run),
    ("tables", shm::tables::run),
    ("segments", shm::segments::run),
    ("snapshot", snapshot::run),
];
