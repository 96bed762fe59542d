//! Tag matching on SRQs: the cases of `c/tags.c`, each on both paths (TM-1 to TM-5).
#![forbid(unsafe_code)]

use std::process::ExitCode;

use adverb_foreign::cases;

fn main() -> ExitCode {
    cases::run("tags")
}
