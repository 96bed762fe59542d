//! Sharing a program's memory with peers, hazard by hazard.
//!
//! Each case is a process of its own, with one thread at first, started from this same program: what it does to threads, signals,
//! limits and `fork` concerns nobody else.
mod basics;
mod world;

use libtest_mimic::{Arguments, Trial};
use std::process::{Command, ExitCode};
use world::Case;

/// Names the case that a child is to play.
const CASE: &str = "ADVERB_MEMORY_CASE";

fn main() -> ExitCode {
    let cases: Vec<Case> = [basics::CASES].concat();
    if let Ok(name) = std::env::var(CASE) {
        let case = cases.iter().find(|case| case.name == name).expect("a case of this name");
        (case.run)();
        return ExitCode::SUCCESS;
    }
    let args = Arguments::from_args();
    let trials = cases.into_iter().map(|case| Trial::test(case.name, move || play(case))).collect();
    libtest_mimic::run(&args, trials).exit_code()
}

fn play(case: Case) -> Result<(), libtest_mimic::Failed> {
    let me = std::env::current_exe()?;
    let mut command = Command::new(&me);
    command.env(CASE, case.name);
    if case.preload {
        let preload = me.parent().expect("a directory").join("libadverb_preload.so");
        assert!(preload.is_file(), "{} has not been built", preload.display());
        command.env("LD_PRELOAD", preload);
    }
    let out = command.output()?;
    if out.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", out.status, String::from_utf8_lossy(&out.stderr)).into())
}
