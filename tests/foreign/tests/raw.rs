//! Raw packet queue pairs, flows and receive side scaling on the loopback device: the cases of
//! `c/raw.c`, each on both paths (RAW-1, RAW-3 to RAW-5).
#![forbid(unsafe_code)]

use std::process::ExitCode;

use adverb_foreign::cases;

fn main() -> ExitCode {
    cases::run("raw")
}
