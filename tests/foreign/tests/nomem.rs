//! Calls without free memory: the cases of `c/nomem.c`, each on both paths (OBJ-10).
#![forbid(unsafe_code)]

use std::process::ExitCode;

use adverb_foreign::cases;

fn main() -> ExitCode {
    cases::run_linked("nomem", &["-lrdmacm"])
}
