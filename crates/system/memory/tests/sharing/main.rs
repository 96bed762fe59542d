//! Access of peers to a program's memory.
//!
//! Each case is its own process, started from this same program, with one thread at first. So its
//! changes of threads, signals, limits and forks affect no other case.
#![allow(unsafe_code, reason = "it maps and unmaps memory under the crate's hands")]
mod peers;
mod world;

use libtest_mimic::{Arguments, Trial};
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

/// The variable with the name of the case for a child to run.
const CASE: &str = "ADVERB_MEMORY_CASE";

/// Hundredths of a second after which a case counts as hanging.
const HANG_LIMIT: u32 = 18_000;

/// The most characters shown of a message.
const MESSAGE: usize = 4000;

fn main() -> ExitCode {
    let cases = peers::CASES;
    if let Ok(name) = std::env::var(CASE) {
        let (_, run) = cases.iter().find(|(of, _)| *of == name).expect("a case of this name");
        run();
        return ExitCode::SUCCESS;
    }
    let args = Arguments::from_args();
    let trials = cases.iter().map(|(name, _)| Trial::test(*name, || play(name))).collect();
    libtest_mimic::run(&args, trials).exit_code()
}

/// Runs a case in its own process.
fn play(name: &str) -> Result<(), libtest_mimic::Failed> {
    let me = std::env::current_exe()?;
    let mut command = Command::new(&me);
    command.env(CASE, name).env("RUST_BACKTRACE", "0");
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let mut stderr = child.stderr.take().expect("a pipe");
    // Read concurrently: a long message would fill the pipe and block the child for ever.
    let said = std::thread::spawn(move || {
        let mut said = Vec::new();
        stderr.read_to_end(&mut said).map(|_| said)
    });
    for _ in 0..HANG_LIMIT {
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
