//! Sharing a program's memory with peers, hazard by hazard.
//!
//! Each case is a process of its own, with one thread at first, started from this same program: what it does to threads, signals,
//! limits and `fork` concerns nobody else.
mod basics;
mod forks;
mod given_up;
mod peers;
mod refusals;
mod threads;
mod world;

use libtest_mimic::{Arguments, Trial};
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use world::Case;

/// Names the case that a child is to play.
const CASE: &str = "ADVERB_MEMORY_CASE";

/// Hundredths of a second after which a case counts as hanging.
const PATIENCE: u32 = 18_000;

/// Characters of a message that are shown.
const MESSAGE: usize = 4000;

fn main() -> ExitCode {
    let cases: Vec<Case> = [
        basics::CASES,
        forks::CASES,
        given_up::CASES,
        given_up::UNSEEN,
        peers::CASES,
        refusals::CASES,
        threads::CASES,
    ]
    .concat();
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
    command.env(CASE, case.name).env("RUST_BACKTRACE", "0");
    if case.preload {
        let preload = me.parent().expect("a directory").join("libadverb_preload.so");
        assert!(preload.is_file(), "{} has not been built", preload.display());
        command.env("LD_PRELOAD", preload);
    }
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut stderr = child.stderr.take().expect("a pipe");
    // Read meanwhile: a long message would fill the pipe, and the child wait for ever.
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        stderr.read_to_end(&mut said).map(|_| said)
    });
    for _ in 0..PATIENCE {
        if let Some(status) = child.try_wait()? {
            let said = said.join().expect("only reads")?;
            let said: String = String::from_utf8_lossy(&said).chars().take(MESSAGE).collect();
            return if status.success() { Ok(()) } else { Err(format!("{status}: {said}").into()) };
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    Err("it hangs".into())
}
