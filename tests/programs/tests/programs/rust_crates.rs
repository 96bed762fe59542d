//! Rust crates over verbs: their own tests and examples, as published.

use std::collections::BTreeMap;
use std::time::Duration;

use adverb_foreign::suite::{Case, case, short};
use adverb_foreign::{Verdict, require};
use adverb_programs::crates_io::{Binary, Crate, built, results};
use adverb_programs::skips::{self, ignored, parse};
use adverb_programs::stage::{PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(120);
/// Tests that are not run or may fail, with the reason: `crate/target/test`.
const LEFT_OUT: &str = include_str!("../../data/rust_crates_left_out.txt");
const CRATES: [Crate; 4] = [
    // The integration tests are not published, so only the unit tests and the example run.
    Crate { name: "ibverbs", version: "0.9.2", args: &["--lib", "--examples"] },
    Crate { name: "ibverbs-rs", version: "0.4.1", args: &["--lib"] },
    Crate { name: "sideway", version: "0.4.2", args: &["--lib", "--tests"] },
    Crate { name: "ruapc-rdma", version: "0.2.0-alpha.7", args: &["--lib"] },
];

pub fn before() -> Verdict {
    skips::print("rust_crates", LEFT_OUT);
    Ok(())
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        for krate in CRATES {
            let name = format!("{path}/{}", krate.name);
            cases.push(if short() && krate.name != "sideway" {
                ignored(name, "the build takes minutes: make programs")
            } else {
                case(name, move || tests(path, &krate))
            });
        }
    }
    cases
}

fn tests(path: &str, krate: &Crate) -> Verdict {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for binary in built(krate)? {
        if left_out(&format!("{}/{}", krate.name, binary.target)) {
            continue;
        }
        if binary.kind == "example" {
            example(path, &binary)?;
            *counts.entry("examples").or_default() += 1;
            continue;
        }
        let program = binary.path.display().to_string();
        // Tests that need a device are often marked with `#[ignore]`.
        let argv = [program.as_str(), "--include-ignored", "--test-threads", "1"];
        let done = Stage::new(path).run(&argv, LIMIT)?;
        let words = results(&done.text);
        for (test, word) in &words {
            let name = format!("{}/{}/{test}", krate.name, binary.target);
            match word.as_str() {
                "ok" => *counts.entry("ok").or_default() += 1,
                _ if left_out(&name) => *counts.entry("left out").or_default() += 1,
                word => wrong.push(format!("{word} {name}")),
            }
        }
        let ran = done.text.lines().any(|l| l.starts_with("test result: "));
        if !ran || !done.ok() && wrong.is_empty() && !words.iter().any(|(_, w)| w == "FAILED") {
            wrong.push(format!("{} did not come to its end", binary.target));
        }
        if !wrong.is_empty() {
            return Err(format!("{}\n{}", wrong.join("\n"), done.describe()));
        }
    }
    println!("{} {} {path}: {counts:?}", krate.name, krate.version);
    require!(counts.values().sum::<usize>() > 0, "{}: nothing ran", krate.name);
    Ok(())
}

fn left_out(name: &str) -> bool {
    parse(LEFT_OUT).iter().any(|(n, _)| *n == name)
}

/// An example must end with status 0.
fn example(path: &str, binary: &Binary) -> Verdict {
    Stage::new(path).run_ok(&[binary.path.display().to_string()], LIMIT).map(|_| ())
}
