//! The pyverbs suite: each core test must end with `ok`. Each generic test must, too, except for a
//! list with reasons.

use std::sync::OnceLock;

use adverb_foreign::device::loopback;
use adverb_foreign::hosts::is_root;
use adverb_foreign::pyverbs::{CORE, GENERIC, Report, Word, names, run as run_suite, unpack};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

/// Generic tests that may be skipped, with the reason: `name: reason`.
const LEFT_OUT: &str = include_str!("../../data/pyverbs_left_out.txt");

pub fn cases() -> Vec<Case> {
    let mut cases: Vec<_> = names(CORE)
        .into_iter()
        .map(|name| case(format!("core/{name}"), move || core(name)))
        .collect();
    let by_address = names(GENERIC).into_iter().filter(|name| name.starts_with("test_rdmacm."));
    cases.extend(by_address.map(|name| case(format!("core/{name}"), move || core(name))));
    cases.push(case("generic_total", total));
    cases
}

/// Runs all tests once, at the first call.
fn report() -> Result<&'static Report, String> {
    static REPORT: OnceLock<Result<Report, String>> = OnceLock::new();
    let made = REPORT.get_or_init(|| {
        let on = loopback()?;
        let dir = unpack()?;
        let result = run_suite(&dir, &names(GENERIC), &on);
        let _ = std::fs::remove_dir_all(&dir);
        Ok(result?.0)
    });
    made.as_ref().map_err(Clone::clone)
}

fn core(name: &str) -> Verdict {
    match report()?.get(name) {
        Some((Word::Ok, _)) => Ok(()),
        Some((word, reason)) => Err(format!("{word:?}: {reason}")),
        None => Err("no result".to_string()),
    }
}

fn may_be_skipped(name: &str, reason: &str) -> bool {
    let listed =
        LEFT_OUT.lines().filter_map(|l| l.split_once(": ")).any(|(listed, _)| listed == name);
    // The suite runs raw packets on Ethernet only as root.
    listed || !is_root() && reason.contains("by root on Ethernet")
}

fn total() -> Verdict {
    let report = report()?;
    let count = |w: Word| report.values().filter(|(word, _)| *word == w).count();
    let mut wrong = Vec::new();
    for (name, (word, reason)) in report {
        let line =
            format!("pyverbs {word:?}: {name}: {}", reason.lines().last().unwrap_or_default());
        match word {
            Word::Ok => {}
            Word::Skip if may_be_skipped(name, reason) => println!("{line}"),
            _ => wrong.push(line),
        }
    }
    println!(
        "pyverbs generic: {} tests: {} ok, {} skip, {} fail, {} error, {} crash, {} hang",
        report.len(),
        count(Word::Ok),
        count(Word::Skip),
        count(Word::Fail),
        count(Word::Error),
        count(Word::Crash),
        count(Word::Hang)
    );
    require!(report.len() == 171, "{} results for 171 tests", report.len());
    require!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
