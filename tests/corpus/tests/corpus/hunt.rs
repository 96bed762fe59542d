//! Tests of `adverb hunt`. Right programs survive every choice on both paths, and nothing is found
//! in right programs and pairs.

use adverb_corpus::{MISTAKES, build};
use adverb_foreign::device::loopback;
use adverb_foreign::process::{Finished, Program, adverb};
use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Time limit of a hunt, in seconds.
const SECONDS: u64 = 60;
/// Margin beyond a run's own time limit.
const GRACE: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for program in MISTAKES.iter().map(|m| m.program).collect::<BTreeSet<_>>() {
        cases.push(case(format!("HUN-5/right/{program}"), move || right(program)));
    }
    cases.push(case("HUN-5/nothing_found_in_a_right_program", nothing_found));
    cases.push(case("HUN-18/a_trace_shows_the_choices", traced));
    cases.push(case("HUN-14/progress_on_a_terminal", progress));
    cases.push(case("HUN-7/nothing_found_in_a_right_pair", nothing_found_in_a_pair));
    cases.push(case("HUN-11/a_message_before_its_connection_is_found", early_receive));
    cases
}

fn with_device(program: Program) -> Result<Program, String> {
    let lo = loopback()?;
    Ok(program.env("RIG_DEV", lo.dev).env("RIG_GID", lo.gid).env("CORPUS_SECONDS", "40"))
}

/// A right program under the schedules of many seeds.
fn right(program: &str) -> Verdict {
    let built = build::right(program)?.display().to_string();
    for path in ["local", "wire"] {
        for seed in 0..by_length(200, 2) {
            let one =
                Program::new(built.clone(), &[] as &[&str]).option("--replay", seed.to_string());
            let out =
                with_device(one)?.env("ADVERB_PATH", path).run(Duration::from_secs(40) + GRACE)?;
            let fine = out.ok() && !out.text.contains("lost wake-up");
            require!(fine, "seed {seed} on the path {path}: {}", out.describe());
        }
    }
    Ok(())
}

pub fn hunt(program: &Path, name: &str, seconds: u64) -> Result<Finished, String> {
    let kept = program.with_file_name(format!("{name}.{}.schedule", std::process::id()));
    let (time, kept) = (format!("{seconds}s"), kept.display().to_string());
    let words = ["hunt", "--time", &time, "--out", &kept, "--", &program.display().to_string()];
    let command = Program::new(adverb()?.display().to_string(), &words).bare();
    let out = with_device(command)?.run(Duration::from_secs(seconds) + GRACE);
    let _ = std::fs::remove_file(kept);
    out
}

/// A hunt of a right program finds nothing, and reports the number of its tries.
fn nothing_found() -> Verdict {
    let out = hunt(&build::right("loop")?, "loop.right", by_length(60, 8))?;
    // The time may be too short for every single choice.
    require!(matches!(out.code(), Some(0 | 3)), "{}", out.describe());
    require!(out.text.contains("nothing found in "), "{}", out.describe());
    Ok(())
}

/// The trace of a replay has a track of the choices, with the places of the calls.
fn traced() -> Verdict {
    let built = build::right("loop")?;
    let trace = built.with_file_name(format!("loop.{}.pftrace", std::process::id()));
    let lines = trace.with_extension("pftrace.jsonl");
    let program = Program::new(built.display().to_string(), &[] as &[&str])
        .option("--replay", "3")
        .option("--trace", trace.display().to_string());
    let out = with_device(program)?.run(Duration::from_secs(40) + GRACE)?;
    let text = std::fs::read_to_string(&lines).map_err(|e| format!("{}: {e}", lines.display()));
    [trace, lines].iter().for_each(|file| drop(std::fs::remove_file(file)));
    require!(out.ok(), "{}", out.describe());
    let text = text?;
    let choice = text.lines().find(|line| line.contains("\"track\":\"choices of the hunt\""));
    let Some(choice) = choice else { return Err("no choice is in the trace".into()) };
    require!(
        choice.contains("\"place\":\"loop.right+") && choice.contains("\"rule\":"),
        "{choice}"
    );
    Ok(())
}

/// On a terminal, a line says how far the hunt is. It is replaced, and does not stay.
fn progress() -> Verdict {
    let program = build::right("loop")?.display().to_string();
    let hunt = format!("{} hunt --time 4s -- {program}", adverb()?.display());
    let words = ["-q", "-e", "-c", &hunt, "/dev/null"];
    let command = Program::new("script", &words).bare();
    let out = with_device(command)?.run(Duration::from_secs(4) + GRACE)?;
    require!(matches!(out.code(), Some(0 | 3)), "{}", out.describe());
    let runs = "\r\x1b[Kadverb hunt: run ";
    require!(out.text.contains(runs), "{}", out.describe());
    let last = out.text.rfind(runs).and_then(|at| out.text[at..].find("\r\x1b[K"));
    require!(last.is_some(), "the line stays: {}", out.describe());
    Ok(())
}

/// A program with an early first message: it is polled before the event thread knows the
/// connection.
fn early_receive() -> Verdict {
    let mistake =
        MISTAKES.iter().find(|m| m.program == "early_receive").ok_or("it is not in the table")?;
    let out = hunt(&build::wrong(mistake)?, "early_receive.alone", SECONDS)?;
    require!(out.code() == Some(1), "it was not found: {}", out.describe());
    let place = format!("in serve, {}.c:", mistake.program);
    require!(
        out.text.contains("rdma_get_cm_event") || out.text.contains("before the connection"),
        "neither the place ({place}) nor what failed is named: {}",
        out.describe()
    );
    Ok(())
}

/// A server and a client that poll and wait for events, on both paths.
fn nothing_found_in_a_pair() -> Verdict {
    let lo = loopback()?;
    let words = ["ibv_rc_pingpong", "-d", &lo.dev, "-g", &lo.gid, "-e", "-n", "200", "-p", "18537"];
    let time = format!("{}s", by_length(60, 8));
    let mut all = vec!["hunt", "--pair", "--time", &time, "--"];
    all.extend(words);
    all.push("--");
    all.extend(words);
    all.push("localhost");
    let command = Program::new(adverb()?.display().to_string(), &all).bare();
    let out = command.run(Duration::from_secs(by_length(60, 8)) + GRACE)?;
    require!(matches!(out.code(), Some(0 | 3)), "{}", out.describe());
    require!(out.text.contains("the pair works in "), "{}", out.describe());
    require!(out.text.contains("nothing found in "), "{}", out.describe());
    Ok(())
}
