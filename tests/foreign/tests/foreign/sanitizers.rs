//! A program built with sanitizers runs like any other under `adverb run`, and no report appears
//! without a fault of the program. `c/sanitized.c` exchanges messages between two processes of two
//! threads each, and starts a shell.

use std::time::Duration;

use adverb_foreign::cases::on_rig;
use adverb_foreign::cc::{compile_with, source_dir};
use adverb_foreign::pair::{Pair, PairOutcome};
use adverb_foreign::process::Program;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(120);
/// Output of the run-time libraries after a finding, or when they do not start.
const REPORTS: [&str; 6] = [
    "ERROR: ",
    "WARNING: ",
    "SUMMARY: ",
    "runtime error: ",
    "does not come first",
    "Sanitizer CHECK failed",
];
/// Halts at the first report, with a separate exit status.
const STRICT: &[&str] = &["-O1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all"];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (compiler, sanitizers) in [
        ("gcc", &["address", "address,undefined", "leak", "thread", "undefined"][..]),
        ("clang", &["address", "leak", "thread", "undefined"][..]),
    ] {
        // A second compiler, which links its run-time libraries into the program. The tests install
        // neither this compiler nor the libraries, which are a package of their own.
        let absent = compiler == "clang" && !clang_has_sanitizers();
        for sanitizer in sanitizers {
            let ours =
                move || exchanges(compiler, &[&format!("-fsanitize={sanitizer}")], sanitizer);
            cases.push(case(format!("{compiler}/{sanitizer}"), ours).ignored_if(absent));
        }
    }
    cases.push(case("gcc/address_with_options_of_its_own", options_stay));
    cases.push(case("gcc/reports_of_the_program_come_through", reports_come_through));
    cases
}

fn clang_has_sanitizers() -> bool {
    let asked = std::process::Command::new("clang").arg("-print-runtime-dir").output();
    let directory = asked.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned());
    let files = directory.and_then(std::fs::read_dir);
    let is_one = |name: &std::ffi::OsStr| name.to_string_lossy().starts_with("libclang_rt.asan");
    files.is_ok_and(|mut files| files.any(|file| file.is_ok_and(|f| is_one(&f.file_name()))))
}

fn pair(compiler: &str, flags: &[&str], name: &str) -> Result<Pair, String> {
    let source = source_dir().join("sanitized.c");
    let name = format!("sanitized_{compiler}_{}", name.replace(',', "_"));
    let program = compile_with(compiler, &[STRICT, flags].concat(), &source, &name)?;
    let end = on_rig(Program::of_file(&program))?;
    Ok(Pair::of(end.clone(), end, LIMIT))
}

/// No report, and the output of the shell that the program starts.
fn silent(outcome: &PairOutcome) -> Verdict {
    outcome.require_of_both(&["child\n", "END\n"], &REPORTS)
}

fn exchanges(compiler: &str, flags: &[&str], name: &str) -> Verdict {
    silent(&pair(compiler, flags, name)?.run_ok()?)
}

/// The options of a sanitizer are often set by the user, or by the parent of the program. Adverb
/// does not depend on them.
fn options_stay() -> Verdict {
    let pair = pair("gcc", &["-fsanitize=address"], "options")?
        .env("ASAN_OPTIONS", "detect_leaks=0:exitcode=77");
    silent(&pair.run_ok()?)?;
    // Here a shell in between sets the options anew.
    let program =
        compile_with("gcc", &["-fsanitize=address"], &source_dir().join("faulty.c"), "faulty")?;
    let line = format!("ASAN_OPTIONS=detect_leaks=0 {}", program.display());
    Program::new("sh", &["-c", &line]).run(LIMIT)?.require_ok()
}

/// Faults of the program are still found.
fn reports_come_through() -> Verdict {
    for (sanitizer, fault, words) in [
        ("address", "-DFAULT_OVERFLOW", "heap-buffer-overflow"),
        ("thread", "-DFAULT_RACE", "data race"),
        ("leak", "-DFAULT_LEAK", "detected memory leaks"),
    ] {
        let flags = [&format!("-fsanitize={sanitizer}"), fault];
        let name = format!("fault_{sanitizer}");
        let program = compile_with("gcc", &flags, &source_dir().join("faulty.c"), &name)?;
        let out = Program::of_file(&program).run(LIMIT)?;
        require!(!out.ok() && out.text.contains(words), "nothing is reported:\n{}", out.describe());
    }
    Ok(())
}
