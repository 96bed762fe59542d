//! C programs of `c/` with many cases, listed in a table at the end of the source. Each case runs
//! in its own process.

use std::time::Duration;

use crate::Verdict;
use crate::cc::{compile, compile_linked, source_dir};
use crate::device::loopback;
use crate::process::{Finished, Program};
use crate::suite::{Case, case, case_or_skip};
use libtest_mimic::Completion;

/// The values of `ADVERB_PATH`: shared memory within the host, and the network.
pub const PATHS: [&str; 2] = ["local", "wire"];
/// The exit status of a case that the machine cannot run.
const SKIPPED: i32 = 77;
const LIMIT: Duration = Duration::from_secs(60);

/// The cases of `c/PROGRAM.c`, each on both paths. A case prints `ok NAME`. On a machine that lacks
/// something, a case prints `skip REASON` with status 77, which counts as ignored and not as
/// passed.
pub fn of(program: &'static str) -> Vec<Case> {
    of_linked(program, &[])
}

/// Like [`of`], on the device of the loopback interface alone.
pub fn on_loopback(program: &'static str) -> Vec<Case> {
    with(program, &[], &[("ADVERB_DEVICES", "lo"), ("RIG_DEV", "adverb_lo"), ("RIG_GID", "0")])
}

/// Like [`of`], with more libraries.
pub fn of_linked(program: &'static str, libraries: &'static [&'static str]) -> Vec<Case> {
    with(program, libraries, &[])
}

fn with(
    program: &'static str,
    libraries: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
) -> Vec<Case> {
    listed(program, |_, name| {
        PATHS
            .map(|path| {
                let case_name = name.clone();
                case_or_skip(format!("{path}/{name}"), move || {
                    let program = rig(program, libraries, &[&case_name])?.env("ADVERB_PATH", path);
                    let program =
                        variables.iter().fold(program, |p, (name, value)| p.env(name, *value));
                    let out = program.run(LIMIT)?;
                    ok_or_skipped(&out, &format!("ok {case_name}"))
                })
            })
            .into()
    })
}

/// The cases made of each line of the table at the end of `c/PROGRAM.c`: lines `{"ID", "name",
/// function},`, or without the requirement.
pub fn listed(program: &str, cases: impl Fn(Option<String>, String) -> Vec<Case>) -> Vec<Case> {
    match table(program) {
        Ok(lines) => lines.into_iter().flat_map(|(id, name)| cases(id, name)).collect(),
        Err(why) => vec![case("the_list_of_cases", move || Err(why))],
    }
}

fn table(program: &str) -> Result<Vec<(Option<String>, String)>, String> {
    let path = source_dir().join(format!("{program}.c"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (_, table) = text.split_once("cases[] = {").ok_or("there is no table of cases")?;
    let (table, _) = table.split_once("};").ok_or("the table of cases has no end")?;
    let row = |line: &str| {
        let mut quoted = line.split('"').skip(1).step_by(2).map(str::to_string);
        let first = quoted.next()?;
        Some(match quoted.next() {
            Some(name) => (Some(first), name),
            None => (None, first),
        })
    };
    let rows: Vec<_> = table.lines().filter_map(row).collect();
    if rows.is_empty() { Err("the table of cases is empty".to_string()) } else { Ok(rows) }
}

/// A program of `c/` for the loopback device.
///
/// # Errors
/// The program does not compile, or there is no loopback device.
pub fn rig<S: AsRef<str>>(name: &str, libraries: &[&str], args: &[S]) -> Result<Program, String> {
    let built = if libraries.is_empty() { compile(name) } else { compile_linked(name, libraries) }?;
    on_rig(Program::new(built.display().to_string(), args))
}

/// The program on the loopback device, which it finds in two variables.
///
/// # Errors
/// There is no loopback device.
pub fn on_rig(program: Program) -> Result<Program, String> {
    let lo = loopback()?;
    Ok(program.env("RIG_DEV", lo.dev).env("RIG_GID", lo.gid))
}

/// Runs a program of `c/` on the loopback device. The exit status must be 0, and the output must
/// contain `words`.
///
/// # Errors
/// The output of the program.
pub fn run_rig(name: &str, args: &[&str], words: &str, limit: Duration) -> Verdict {
    rig(name, &[], args)?.run_ok(limit)?.require_words(&[words])
}

/// Judges a case: `words` in the output, or `skip REASON` with status 77.
///
/// # Errors
/// The output of the program.
pub fn ok_or_skipped(out: &Finished, words: &str) -> Result<Completion, String> {
    let skipped = out.text.lines().find_map(|l| l.strip_prefix("skip "));
    if let (Some(SKIPPED), Some(reason)) = (out.code(), skipped) {
        return Ok(Completion::ignored_with(reason));
    }
    out.require_ok()?;
    out.require_words(&[words]).map(|()| Completion::Completed)
}
