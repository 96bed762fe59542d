//! Suites of one C program with many cases. Each case runs in its own process, on both paths.

use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use crate::cc::{compile_linked, source_dir};
use crate::device::loopback;
use crate::process::Program;
use crate::suite::{case, run as run_suite};
use libtest_mimic::{Completion, Trial};

/// The exit status of a case that the machine cannot run.
const SKIPPED: i32 = 77;
const LIMIT: Duration = Duration::from_secs(60);

/// Runs the cases of `c/NAME.c`. The table at its end has lines `{"ID", "name", function},` with
/// the requirement. A case prints `ok NAME`. On a machine that lacks something, a case prints `skip
/// REASON` with status 77, which counts as ignored and not as passed.
pub fn run(program: &'static str) -> ExitCode {
    run_linked(program, &[])
}

/// Like [`run`], with more libraries.
pub fn run_linked(program: &'static str, libraries: &'static [&'static str]) -> ExitCode {
    let cases = match listed(program) {
        Ok(names) => names
            .into_iter()
            .flat_map(|n| [(n.clone(), "local"), (n, "wire")])
            .map(|(name, path)| {
                Trial::ignorable_test(format!("{path}/{name}"), move || {
                    Ok(one(program, libraries, &name, path)?)
                })
            })
            .collect(),
        Err(why) => vec![case("the_list_of_cases", move || Err(why))],
    };
    run_suite(program, cases)
}

fn listed(program: &str) -> Result<Vec<String>, String> {
    let path = source_dir().join(format!("{program}.c"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (_, table) = text.split_once("cases[] = {").ok_or("there is no table of cases")?;
    let (table, _) = table.split_once("};").ok_or("the table of cases has no end")?;
    let names: Vec<_> = table.lines().filter_map(|l| Some(l.split('"').nth(3)?.to_string())).collect();
    if names.is_empty() { Err("the table of cases is empty".to_string()) } else { Ok(names) }
}

fn one(program: &str, libraries: &[&str], name: &str, path: &str) -> Result<Completion, String> {
    static BUILT: OnceLock<Result<std::path::PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| compile_linked(program, libraries)).clone()?;
    let lo = loopback()?;
    let out = Program::new(built.display().to_string(), &[name])
        .env("RIG_DEV", lo.dev)
        .env("RIG_GID", lo.gid)
        .env("ADVERB_PATH", path)
        .run(LIMIT)?;
    let skipped = out.text.lines().find_map(|l| l.strip_prefix("skip "));
    if let (Some(SKIPPED), Some(reason)) = (out.code(), skipped) {
        return Ok(Completion::ignored_with(reason));
    }
    out.require_ok()?;
    if out.text.contains(&format!("ok {name}")) { Ok(Completion::Completed) } else { Err(out.describe()) }
}
