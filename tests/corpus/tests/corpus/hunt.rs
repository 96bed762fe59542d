//! Tests of `adverb hunt`. Right programs survive every choice on both paths, and nothing is found
//! in right programs and pairs.

use adverb_corpus::{MISTAKES, RIGHT_SECONDS, build, programs, run};
use adverb_foreign::device::on_loopback;
use adverb_foreign::process::{Finished, Program, adverb};
use adverb_foreign::scratch::Scratch;
use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};
use std::path::Path;
use std::time::Duration;

/// Time limit of a hunt, in seconds.
const SECONDS: u64 = 60;
/// The same for a replay.
const REPLAYED: u64 = 40;

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for program in programs() {
        cases.push(case(format!("HUN-5/right/{program}"), move || right(program)));
    }
    cases.push(case("HUN-5/nothing_found_in_a_right_program", nothing_found));
    cases.push(case("HUN-18/a_trace_shows_the_choices", traced));
    cases.push(case("HUN-14/progress_on_a_terminal", progress));
    cases.push(case("HUN-7/nothing_found_in_a_right_pair", nothing_found_in_a_pair));
    cases.push(case("HUN-11/a_message_before_its_connection_is_found", early_receive));
    cases
}

/// A right program under the schedules of many seeds.
fn right(program: &str) -> Verdict {
    let built = build::right(program)?;
    for path in ["local", "wire"] {
        for seed in 0..by_length(200, 2) {
            let one = Program::of_file(&built).option("--replay", seed.to_string());
            let out = run(one.env("ADVERB_PATH", path), RIGHT_SECONDS, REPLAYED)?;
            let fine = out.ok() && !out.text.contains("lost wake-up");
            require!(fine, "seed {seed} on the path {path}: {}", out.describe());
        }
    }
    Ok(())
}

pub fn hunt(program: &Path, name: &str, seconds: u64) -> Result<Finished, String> {
    let scratch = Scratch::new(name)?;
    let (time, kept) = (format!("{seconds}s"), scratch.path("schedule"));
    let words = ["hunt", "--time", &time, "--out", &kept, "--", &program.display().to_string()];
    run(Program::of_file(&adverb()?).args(&words).bare(), RIGHT_SECONDS, seconds)
}

/// The hunt found nothing, and says so with these words. The time may be too short for every single
/// choice.
fn require_nothing(out: &Finished, words: &[&str]) -> Verdict {
    out.require(matches!(out.code(), Some(0 | 3)))?;
    out.require_words(words)
}

/// A hunt of a right program finds nothing, and reports the number of its tries.
fn nothing_found() -> Verdict {
    let out = hunt(&build::right("loop")?, "loop.right", by_length(60, 8))?;
    require_nothing(&out, &["nothing found in "])
}

/// The trace of a replay has a track of the choices, with the places of the calls.
fn traced() -> Verdict {
    let scratch = Scratch::new("loop")?;
    let program = Program::of_file(&build::right("loop")?)
        .option("--replay", "3")
        .option("--trace", scratch.path("a.pftrace"));
    let out = run(program, RIGHT_SECONDS, REPLAYED)?;
    out.require_ok()?;
    let lines = scratch.path("a.pftrace.jsonl");
    let text = std::fs::read_to_string(&lines).map_err(|e| format!("{lines}: {e}"))?;
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
    let out = run(command, RIGHT_SECONDS, 4)?;
    let runs = "\r\x1b[Kadverb hunt: run ";
    require_nothing(&out, &[runs])?;
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
    let seconds = by_length(60, 8);
    let pingpong = on_loopback("-g", "-e -n 200 -p 18537")?.join(" ");
    let one = format!("ibv_rc_pingpong {pingpong}");
    let line = format!("hunt --pair --time {seconds}s -- {one} -- {one} localhost");
    let command = Program::of_line(&format!("{} {line}", adverb()?.display())).bare();
    let out = command.run(Duration::from_secs(seconds + 60))?;
    require_nothing(&out, &["the pair works in ", "nothing found in "])
}
