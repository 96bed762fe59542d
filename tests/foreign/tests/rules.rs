//! Rules of verbs on which programs rely, as on NICs: the cases of `c/rules.c`, each on both paths.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use adverb_foreign::cc::{compile, source_dir};
use adverb_foreign::device::loopback;
use adverb_foreign::process::Program;
use adverb_foreign::suite::{case, run};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut cases = Vec::new();
    match listed() {
        Ok(names) => {
            for (name, path) in names.into_iter().flat_map(|n| [(n.clone(), "local"), (n, "wire")]) {
                cases.push(case(format!("{path}/{name}"), move || rule(&name, path)));
            }
        }
        Err(why) => cases.push(case("the_list_of_cases", move || Err(why))),
    }
    run("rules", cases)
}

/// The names in the table at the end of `rules.c`: lines `{"name", function},`.
fn listed() -> Result<Vec<String>, String> {
    let path = source_dir().join("rules.c");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let (_, table) = text.split_once("cases[] = {").ok_or("rules.c has no table of cases")?;
    let (table, _) = table.split_once("};").ok_or("the table of rules.c has no end")?;
    let names: Vec<_> = table.lines().filter_map(|l| Some(l.split('"').nth(1)?.to_string())).collect();
    if names.is_empty() { Err("the table of rules.c is empty".to_string()) } else { Ok(names) }
}

fn rule(name: &str, path: &str) -> Verdict {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = BUILT.get_or_init(|| compile("rules")).clone()?;
    let lo = loopback()?;
    let out = Program::new(program.display().to_string(), &[name])
        .env("RIG_DEV", lo.dev)
        .env("RIG_GID", lo.gid)
        .env("ADVERB_PATH", path)
        .run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains(&format!("ok {name}")), "{}", out.describe());
    Ok(())
}
