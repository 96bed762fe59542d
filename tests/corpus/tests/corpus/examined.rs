//! A process that fails, hangs or is asked says why, and ends as it would without the check.

use adverb_foreign::cases::rig;
use adverb_foreign::process::Program;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(30);

/// How the program ends: with a status, or by a signal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ProgramEnd {
    Status(i32),
    Signal(i32),
}

/// The program's argument, its end, and words of the report; none for no report.
const ENDS: [(&str, ProgramEnd, Option<&str>); 7] = [
    ("call", ProgramEnd::Status(1), Some("check: call-failed: ibv_create_qp failed")),
    ("_exit", ProgramEnd::Status(3), None),
    ("fault", ProgramEnd::Signal(11), Some("check: crashed: ")),
    ("abort", ProgramEnd::Signal(6), Some("check: crashed: ")),
    ("alarm", ProgramEnd::Signal(14), Some("check: waits: ")),
    ("fork", ProgramEnd::Status(0), Some("check: crashed: ")),
    ("handler", ProgramEnd::Status(11), None),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (how, end, words) in ENDS {
        cases.push(case(format!("CHK-15/{how}"), move || ends(how, end, words)));
    }
    cases.push(case("CHK-15/stuck_after", stuck));
    cases.push(case("CHK-15/quit", quit));
    cases
}

fn program(how: &str) -> Result<Program, String> {
    rig("examined", &[], &[how])
}

fn ends(how: &str, end: ProgramEnd, words: Option<&str>) -> Verdict {
    let out = program(how)?.flag("--check").run(LIMIT)?;
    let status = out.status.ok_or("no status")?;
    let ended = match end {
        ProgramEnd::Status(code) => status.code() == Some(code),
        ProgramEnd::Signal(signal) => status.signal() == Some(signal),
    };
    require!(ended, "{}", out.describe());
    let reported = words.map_or(!out.text.contains("check: "), |words| out.text.contains(words));
    require!(reported, "{}", out.describe());
    require!(words.is_none() || out.text.contains("examined.c:"), "no line: {}", out.describe());
    Ok(())
}

/// A program whose threads sleep says once what it waits for, and goes on.
fn stuck() -> Verdict {
    let out = program("sleep")?.option("--stuck-after", "1s").run(LIMIT)?;
    require!(out.code() == Some(14), "{}", out.describe());
    require!(out.text.matches("check: waits: ").count() == 1, "{}", out.describe());
    let out = program("sleep")?.flag("--check").run(LIMIT)?;
    require!(out.code() == Some(14) && !out.text.contains("check: "), "{}", out.describe());
    Ok(())
}

/// Each SIGQUIT has an answer, and the program goes on.
fn quit() -> Verdict {
    let out = program("quit")?.option("--stuck-after", "60s").run(LIMIT)?;
    require!(out.code() == Some(0), "{}", out.describe());
    require!(out.text.matches("check: waits: ").count() == 2, "{}", out.describe());
    Ok(())
}
