//! A process changes its user after it has opened a device. It works with its peers on the host, or
//! fails at once with both users named (TRU-1): cases of `c/users.c`. Only root can change its
//! user. Without root the cases are ignored, with the reason.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use adverb_foreign::cc::compile;
use adverb_foreign::device::loopback;
use adverb_foreign::process::Program;
use adverb_foreign::require;
use adverb_foreign::suite::run;
use libtest_mimic::{Completion, Trial};

const LIMIT: Duration = Duration::from_secs(60);
/// The exit status of a case that the machine cannot run.
const SKIPPED: i32 = 77;
const NAMED: [&str; 3] = ["adverb: error: ", "user 0 (`id -un 0`)", "user 2001 (`id -un 2001`)"];

/// A case, its paths, whether its processes work at the end, and how many of them are refused. The
/// last case needs shared memory, because only a greeting shows at once that the peer has changed.
const CASES: [(&str, &[&str], bool, usize); 6] = [
    ("before_the_first", &["local", "wire"], true, 0),
    ("after_the_connection", &["local"], true, 0),
    ("after_the_first", &["local", "wire"], false, 2),
    ("for_a_while", &["local", "wire"], true, 2),
    ("in_a_thread", &["local", "wire"], true, 2),
    ("of_the_peer", &["local"], false, 1),
];

fn main() -> ExitCode {
    let trials = CASES.into_iter().flat_map(|(name, paths, works, refused)| {
        paths.iter().map(move |path| {
            Trial::ignorable_test(format!("{path}/{name}"), move || Ok(one(name, path, works, refused)?))
        })
    });
    run("users", trials.collect())
}

fn one(name: &str, path: &str, works: bool, refused: usize) -> Result<Completion, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = BUILT.get_or_init(|| compile("users")).clone()?;
    let lo = loopback()?;
    let out = Program::new(program.display().to_string(), &[name])
        .env("RIG_DEV", lo.dev)
        .env("RIG_GID", lo.gid)
        .env("ADVERB_PATH", path)
        .run(LIMIT)?;
    let skipped = out.text.lines().find_map(|line| line.strip_prefix("skip "));
    if let (Some(SKIPPED), Some(reason)) = (out.code(), skipped) {
        return Ok(Completion::ignored_with(reason));
    }
    out.require_ok()?;
    require!(out.text.contains(&format!("ok {name}")), "{}", out.describe());
    let count = |what: &str| out.text.lines().filter(|line| line.contains(what)).count();
    require!(count("20 operations") == if works { 2 } else { 0 }, "{}", out.describe());
    require!(count(": refused") == refused, "{}", out.describe());
    let is_named = out.text.lines().any(|line| NAMED.iter().all(|word| line.contains(word)));
    require!(is_named == (refused > 0), "{}", out.describe());
    Ok(Completion::Completed)
}
