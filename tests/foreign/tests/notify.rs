//! CQN and CHN requirements: each case of `c/notify.c` is a test named by its id. The manual page's
//! two examples are tests as well.
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

/// Most cases take a second; the races take longer.
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut cases = Vec::new();
    match listed() {
        Ok(list) => {
            for (id, name) in list {
                cases.push(case(format!("{id}/{name}"), move || conformance(&id, &name)));
            }
        }
        Err(why) => cases.push(case("the_list_of_cases", move || Err(why))),
    }
    // CHN-8: both examples of the manual page.
    cases.push(case("CHN-8/example_blocking", || example("example_blocking", "ok blocking: 100 messages")));
    cases.push(case("CHN-8/example_nonblocking", || {
        example("example_nonblocking", "ok non-blocking: 100 messages")
    }));
    run("notify", cases)
}

/// Id and name of each case, from the table at the end of `notify.c`: lines `{"CQN-1", "name",
/// function},`.
fn listed() -> Result<Vec<(String, String)>, String> {
    let path = source_dir().join("notify.c");
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let list: Vec<_> = text
        .lines()
        .filter_map(|l| {
            let mut quoted = l.trim().strip_prefix("{\"C")?.split('"');
            Some((format!("C{}", quoted.next()?), quoted.nth(1)?.to_string()))
        })
        .collect();
    for id in (1..=12).map(|n| format!("CQN-{n}")).chain((1..=7).map(|n| format!("CHN-{n}"))) {
        if !list.iter().any(|(i, _)| *i == id) {
            return Err(format!("notify.c has no case for {id}"));
        }
    }
    Ok(list)
}

fn notify_program() -> Result<PathBuf, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    BUILT.get_or_init(|| compile("notify")).clone()
}

fn conformance(id: &str, name: &str) -> Verdict {
    let program = notify_program()?;
    let lo = loopback()?;
    let out = Program::new(program.display().to_string(), &[name])
        .env("RIG_DEV", lo.dev)
        .env("RIG_GID", lo.gid)
        .run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains(&format!("ok {id} {name}")), "{}", out.describe());
    Ok(())
}

fn example(name: &str, words: &str) -> Verdict {
    let program = compile(name)?;
    let lo = loopback()?;
    let out = Program::new(program.display().to_string(), &[] as &[&str])
        .env("RIG_DEV", lo.dev)
        .env("RIG_GID", lo.gid)
        .run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains(words), "{}", out.describe());
    Ok(())
}
