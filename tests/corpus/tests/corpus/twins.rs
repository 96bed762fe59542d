//! Every right program passes, on both paths, in every run. Every wrong program compiles and ends
//! within its time limit. A table shows how often it fails; this depends on chance and is not
//! judged.

use adverb_corpus::{MISTAKES, Mistake, RIGHT_SECONDS, build, programs, run};
use adverb_foreign::cases::PATHS;
use adverb_foreign::process::{Finished, Program};
use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;

/// Time limit of a wrong program, in seconds. It may hang in each run.
const WRONG_SECONDS: u64 = 3;

/// Lines of the table: name, path, runs that failed, runs.
static RATES: Mutex<Vec<(String, &'static str, u32, u32)>> = Mutex::new(Vec::new());

pub fn cases() -> Vec<Case> {
    let mut cases = vec![case("table", table)];
    for program in programs() {
        cases.push(case(format!("right/{program}"), move || right(program)));
    }
    for mistake in MISTAKES {
        cases.push(case(format!("wrong/{}", mistake.name()), move || wrong(mistake)));
    }
    cases
}

/// The table and the directory agree, and each line to be named occurs once in its file.
fn table() -> Verdict {
    require!(MISTAKES.len() >= 24, "{} wrong programs", MISTAKES.len());
    let names: BTreeSet<_> = MISTAKES.iter().map(Mistake::name).collect();
    require!(names.len() == MISTAKES.len(), "two wrong programs have one name");
    for mistake in MISTAKES {
        mistake.line_number()?;
        require!(!mistake.finders.is_empty(), "{}: nobody is to find it", mistake.name());
        require!(!mistake.words.is_empty(), "{}: no words are to be named", mistake.name());
    }
    let directory = build::directory();
    let files =
        std::fs::read_dir(&directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let files: BTreeSet<_> = files
        .filter_map(|f| Some(f.ok()?.file_name().to_str()?.strip_suffix(".c")?.to_string()))
        .collect();
    let listed: BTreeSet<_> = programs().iter().map(ToString::to_string).collect();
    require!(files == listed, "files {files:?}, in the table {listed:?}");
    Ok(())
}

fn start(program: &Path, path: &str, seconds: u64) -> Result<Finished, String> {
    run(Program::of_file(program).env("ADVERB_PATH", path), seconds, 0)
}

fn right(program: &str) -> Verdict {
    let built = build::right(program)?;
    for path in PATHS {
        for _ in 0..by_length(5, 2) {
            let out = start(&built, path, RIGHT_SECONDS)?;
            let fine = out.ok() && out.text.contains(&format!("ok {program}"));
            require!(fine, "on the path {path}: {}", out.describe());
        }
    }
    Ok(())
}

fn wrong(mistake: &Mistake) -> Verdict {
    let built = build::wrong(mistake)?;
    for path in PATHS {
        let (mut failed, runs) = (0, by_length(20, 1));
        for _ in 0..runs {
            let out = start(&built, path, WRONG_SECONDS)?;
            require!(!out.timed_out, "no end within its bound: {}", out.describe());
            failed += u32::from(!out.ok());
        }
        RATES.lock().map_err(|e| e.to_string())?.push((mistake.name(), path, failed, runs));
    }
    Ok(())
}

pub fn print_rates() {
    let Ok(rates) = RATES.lock() else { return };
    if !rates.is_empty() {
        println!("{:20} {:6} {:>6} {:>5}", "wrong program", "path", "failed", "runs");
    }
    for (name, path, failed, runs) in rates.iter() {
        println!("{name:20} {path:6} {failed:6} {runs:5}");
    }
}
