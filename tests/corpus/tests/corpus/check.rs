//! Tests of `adverb run --check`. No right program gets a report on either path. Each wrong program
//! of a list is named, with the line if the ledger knows it. Mistakes that happen by chance get
//! several runs.

use adverb_corpus::{MISTAKES, Mistake, RIGHT_SECONDS, build, names_line, programs, run};
use adverb_foreign::process::{Finished, Program};
use adverb_foreign::scratch::Scratch;
use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};
use std::path::Path;

/// Wrong programs that a check must name: the program, the report, whether with the line of the
/// mistake, and the limit of runs. Mistakes that need a busy machine are not listed
/// (docs/check.md).
const NAMED: &[(&str, &str, bool, u32)] = &[
    ("async_ack", "event-not-acknowledged", true, 120),
    ("async_edge", "edge-not-drained", true, 120),
    ("dereg_early", "region-in-use", true, 1),
    ("edge", "edge-not-drained", true, 20),
    ("fork_pages", "registered-memory-forked", true, 1),
    ("freed_buffer", "buffer-changed", false, 3),
    ("late_cm_ack", "event-not-acknowledged", true, 1),
    ("late_write", "queue-pair-failed", true, 1),
    ("leaked_mr", "left-at-exit", true, 40),
    ("ledger", "send-queue-overposted", true, 120),
    ("loop-never-acks", "event-not-acknowledged", true, 1),
    ("opcode_on_error", "undefined-fields", false, 10),
    ("repost_flushed", "posted-in-error", false, 1),
    ("reused_buffer", "buffer-changed", false, 3),
    ("rnr_timer", "longest-rnr-timer", false, 40),
    ("short_grh", "receive-too-short", true, 1),
    ("small_cq", "cq-too-small", true, 1),
    ("small_inline", "post-refused", true, 1),
    ("uc_reused", "buffer-changed", false, 1),
    ("xrc_dry", "no-receive", true, 1),
    ("zero_element", "zero-length-element", false, 40),
];
/// The exit status after a report.
const REPORTED: i32 = 77;
/// Time limit of a wrong program, in seconds.
const WRONG_SECONDS: u64 = 5;
/// Time limit of a program to be named in its only run.
const ONLY_SECONDS: u64 = 15;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for program in programs() {
        cases.push(case(format!("CHK-10/right/{program}"), move || right(program)));
    }
    for (name, code, line, runs) in NAMED {
        cases.push(case(format!("CHK-11/{name}"), move || wrong(name, code, *line, *runs)));
    }
    cases.push(case("CHK-9/suppressed", suppressed));
    cases.push(case("CHK-13/files", files));
    cases
}

fn start(
    program: &Path,
    path: &str,
    seconds: u64,
    options: &[(&str, &str)],
) -> Result<Finished, String> {
    let mut program = Program::of_file(program).env("ADVERB_PATH", path);
    program = program.flag("--check").option("--check-exit", REPORTED.to_string());
    for (name, value) in options {
        program = program.option(name, *value);
    }
    run(program, seconds, 0)
}

fn right(program: &str) -> Verdict {
    let built = build::right(program)?;
    for path in ["local", "wire"] {
        for _ in 0..by_length(10, 2) {
            let out = start(&built, path, RIGHT_SECONDS, &[])?;
            require!(out.ok(), "on the path {path}: {}", out.describe());
            require!(
                !out.text.contains("check: "),
                "a report on the path {path}: {}",
                out.describe()
            );
        }
    }
    Ok(())
}

fn mistake(name: &str) -> Result<&'static Mistake, String> {
    MISTAKES.iter().find(|m| m.name() == name).ok_or_else(|| format!("no wrong program {name}"))
}

fn wrong(name: &str, code: &str, line: bool, runs: u32) -> Verdict {
    let mistake = mistake(name)?;
    let built = build::wrong(mistake)?;
    let mut last = String::new();
    for _ in 0..runs {
        let seconds = if runs == 1 { ONLY_SECONDS } else { WRONG_SECONDS };
        let out = start(&built, "local", seconds, &[])?;
        let report = out.text.lines().find(|l| l.contains(&format!("check: {code}: ")));
        let Some(report) = report else {
            last = out.describe();
            continue;
        };
        let place = format!("{}.c:{}", mistake.program, mistake.line_number()?);
        require!(!line || names_line(report, &place), "{place} is not named: {report}");
        require!(!out.ok(), "the exit status does not tell: {}", out.describe());
        let times = out.text.matches(&format!("check: {code}: ")).count();
        require!(times == 1, "reported {times} times: {}", out.describe());
        return Ok(());
    }
    Err(format!("not named in {runs} runs; the last: {last}"))
}

/// The files contain the report with the line, or state its absence. The exit status is the same as
/// without the files.
fn files() -> Verdict {
    let mistake = mistake("dereg_early")?;
    let line = mistake.line_number()?;
    for (built, wrong) in [(build::wrong(mistake)?, true), (build::right(mistake.program)?, false)]
    {
        let scratch = Scratch::new("check")?;
        let [junit, sarif] = ["junit", "sarif"].map(|kind| scratch.path(kind));
        let options = [("--check-junit", &*junit), ("--check-sarif", &*sarif)];
        let out = start(&built, "local", RIGHT_SECONDS, &options)?;
        out.require(out.code() == Some(if wrong { REPORTED } else { 0 }))?;
        let [junit, sarif] = [junit, sarif]
            .map(|file| std::fs::read_to_string(&file).map_err(|e| format!("{file}: {e}")));
        let (junit, sarif) = (junit?, sarif?);
        require!(junit.contains(&format!("failures=\"{}\"", u32::from(wrong))), "{junit}");
        require!(junit.contains("type=\"region-in-use\"") == wrong, "{junit}");
        require!(junit.contains(&format!("dereg_early.c:{line} ")) == wrong, "{junit}");
        require!(sarif.contains(&format!("\"startLine\": {line}")) == wrong, "{sarif}");
    }
    Ok(())
}

/// A suppressed report is neither printed nor counted. Another pattern suppresses nothing.
fn suppressed() -> Verdict {
    let built = build::wrong(mistake("dereg_early")?)?;
    let scratch = Scratch::new("check")?;
    let file = scratch.path("suppressions");
    for (line, ok) in
        [("region-in-use *send_one*", true), ("region-in-use no_such_function", false)]
    {
        std::fs::write(&file, line).map_err(|e| e.to_string())?;
        let out = start(&built, "local", RIGHT_SECONDS, &[("--check-suppress", &file)])?;
        require!(
            out.ok() == ok && out.text.contains("check: ") != ok,
            "{line}: {}",
            out.describe()
        );
        require!(ok || out.code() == Some(REPORTED), "{line}: {}", out.describe());
    }
    Ok(())
}
