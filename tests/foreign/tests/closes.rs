//! A program closes all its descriptors while a device is open, and gets the same numbers for its
//! own files and sockets. The device neither writes to these, nor reads from them, nor closes them
//! (`c/closes.c`).
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use adverb_foreign::cc::compile;
use adverb_foreign::device::loopback;
use adverb_foreign::process::Program;
use adverb_foreign::suite::{case, run};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let all = ["files", "sockets", "datagrams"].into_iter();
    let cases = all.flat_map(|kind| {
        ["local", "wire"].map(|path| case(format!("{path}/{kind}"), move || one(kind, path)))
    });
    run("closes", cases.collect())
}

fn one(kind: &str, path: &str) -> Verdict {
    let lo = loopback()?;
    let out = Program::new(compile("closes")?.display().to_string(), &[kind])
        .env("RIG_DEV", lo.dev)
        .env("RIG_GID", lo.gid)
        .env("ADVERB_PATH", path)
        .run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains(&format!("ok closes {kind}")), "{}", out.describe());
    Ok(())
}
