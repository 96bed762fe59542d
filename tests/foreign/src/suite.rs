//! Small helpers around libtest-mimic: named cases, short or full runs, a closing line per suite.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::Verdict;

/// Whether the short selection is requested (`ADVERB_FOREIGN_SHORT` set and not empty).
pub fn short() -> bool {
    std::env::var_os("ADVERB_FOREIGN_SHORT").is_some_and(|v| !v.is_empty())
}

/// Chooses a value by the length of the run.
pub fn by_length<T>(full: T, short_run: T) -> T {
    if short() { short_run } else { full }
}

/// A named case.
pub fn case(name: impl Into<String>, run: impl FnOnce() -> Verdict + Send + 'static) -> Trial {
    Trial::test(name, move || run().map_err(Failed::from))
}

/// Like [`run`], for cases that choose their own path. A run with `ADVERB_PATH` would repeat the
/// same cases, so it only prints a line.
pub fn run_on_own_paths(suite: &str, cases: Vec<Trial>) -> ExitCode {
    match std::env::var("ADVERB_PATH") {
        Ok(path) if !path.is_empty() => {
            println!(
                "suite {suite}: not run, as its cases choose their paths: run it without ADVERB_PATH={path}"
            );
            ExitCode::SUCCESS
        }
        _ => run(suite, cases),
    }
}

/// Runs the cases one after the other unless the arguments say otherwise, and prints a closing line
/// with the suite's name.
///
/// Latency programs spin: on a small machine two at once take each other's processor, so the
/// default is serial.
pub fn run(suite: &str, cases: Vec<Trial>) -> ExitCode {
    let mut args = Arguments::from_args();
    if args.test_threads.is_none() {
        args.test_threads = Some(1);
    }
    if args.list {
        return libtest_mimic::run(&args, cases).exit_code();
    }
    // A time limit or Ctrl-C ends the suite without destructors. The guard ends all programs of a
    // case then.
    if let Err(e) = adverb_survivor::guard(adverb_survivor::AtEnd::default()) {
        eprintln!("suite {suite}: programs may outlive the suite if a signal ends it: {e}");
    }
    let conclusion = libtest_mimic::run(&args, cases);
    println!(
        "suite {suite}: {} passed, {} failed, {} ignored, {} filtered out ({} run)",
        conclusion.num_passed,
        conclusion.num_failed,
        conclusion.num_ignored,
        conclusion.num_filtered_out,
        if short() { "short" } else { "full" }
    );
    conclusion.exit_code()
}
