//! Accepted and granted values of creation and modification: the cases of `c/values.c`, each on
//! both paths (OBJ-8, OBJ-9, NIC-6).
#![forbid(unsafe_code)]

use std::process::ExitCode;

use adverb_foreign::cases;

fn main() -> ExitCode {
    cases::run("values")
}
