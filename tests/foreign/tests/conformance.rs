//! Cases in which IBTA, NICs and soft-RoCE differ, and Adverb's choice (docs/conformance.md): the
//! cases of `c/conformance.c`, each on both paths (OBJ-11 to OBJ-14, CQN-10, CQN-11).
#![forbid(unsafe_code)]

use std::process::ExitCode;

use adverb_foreign::cases;

fn main() -> ExitCode {
    cases::run("conformance")
}
