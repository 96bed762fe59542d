//! The pyverbs suite: each core test must say `ok`, and in all no fewer of the generic ones than
//! Linux rxe passes.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::OnceLock;

use adverb_foreign::device::loopback;
use adverb_foreign::pyverbs::{CORE, GENERIC, Report, Word, names, run as run_suite, unpack};
use adverb_foreign::suite::{case, run};
use adverb_foreign::{Verdict, require};

/// What rdma_rxe of Linux 6.1 passes of the generic tests.
const RXE_PASSES: usize = 86;

fn main() -> ExitCode {
    let mut cases: Vec<_> =
        names(CORE).into_iter().map(|name| case(format!("core/{name}"), move || core(name))).collect();
    let by_address = names(GENERIC).into_iter().filter(|name| name.starts_with("test_rdmacm."));
    cases.extend(by_address.map(|name| case(format!("core/{name}"), move || core(name))));
    cases.push(case("generic_total", total));
    run("pyverbs", cases)
}

/// Runs everything once, whichever case comes first.
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

fn total() -> Verdict {
    let report = report()?;
    let count = |w: Word| report.values().filter(|(word, _)| *word == w).count();
    for (name, (word, reason)) in report {
        if *word != Word::Ok {
            println!("pyverbs {word:?}: {name}: {}", reason.lines().last().unwrap_or_default());
        }
    }
    let ok = count(Word::Ok);
    println!(
        "pyverbs generic: {} tests: {ok} ok, {} skip, {} fail, {} error, {} crash, {} hang",
        report.len(),
        count(Word::Skip),
        count(Word::Fail),
        count(Word::Error),
        count(Word::Crash),
        count(Word::Hang)
    );
    require!(report.len() == 171, "{} results for 171 tests", report.len());
    require!(ok >= RXE_PASSES, "{ok} of 171 ok; rxe passes {RXE_PASSES}");
    for word in [Word::Crash, Word::Hang] {
        require!(count(word) == 0, "{} tests ended in {word:?}", count(word));
    }
    Ok(())
}
