//! UCM-11: the file of rdma_cm in libibverbs.so.1, with the commands of the kernel's header, within
//! one host and over the wire.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use adverb_foreign::cc::compile;
use adverb_foreign::device::loopback;
use adverb_foreign::process::Program;
use adverb_foreign::suite::{case, run_on_own_paths};
use adverb_foreign::{Verdict, require};

fn main() -> ExitCode {
    run_on_own_paths(
        "ucma",
        vec![
            case("UCM-11/the_file_on_one_host", || program("local")),
            case("UCM-11/the_file_by_the_wire", || program("wire")),
        ],
    )
}

fn program(path: &str) -> Verdict {
    let program = compile("ucma")?;
    let lo = loopback()?;
    let out = Program::new(program.display().to_string(), &[] as &[&str])
        .env("RIG_DEV", lo.dev)
        .env("RIG_GID", lo.gid)
        .env("ADVERB_PATH", path)
        .run(Duration::from_secs(120))?;
    out.require_ok()?;
    require!(out.text.contains("ok ucma"), "{}", out.describe());
    Ok(())
}
