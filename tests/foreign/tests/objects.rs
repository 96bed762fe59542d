//! Memory of descriptors, registrations by attributes, DMA handles, completion counters and huge
//! pages: the cases of `c/objects.c`, each on both paths (OBJ-1 to OBJ-5). A case that the machine
//! cannot run is named as skipped, with the reason.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use adverb_foreign::cases;

fn main() -> ExitCode {
    cases::run("objects")
}
