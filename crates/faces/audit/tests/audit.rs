//! The auditor's shared object, as the loader sees it.

use std::path::PathBuf;
use std::process::Command;

fn library() -> PathBuf {
    let exe = std::env::current_exe().expect("the test has a path");
    let file = exe.parent().expect("a directory").join("libadverb_audit.so");
    assert!(file.is_file(), "{} has not been built", file.display());
    file
}

fn said(program: &str, flags: &[&str]) -> String {
    let run = Command::new(program).args(flags).arg(library()).output();
    String::from_utf8(run.expect("install the package binutils").stdout).expect("ASCII")
}

/// SYS-3: a library that the auditor needs would be loaded twice into every process.
#[test]
fn nothing_is_needed_and_nothing_but_the_two_questions_answered() {
    let dynamic = said("readelf", &["--dynamic", "--wide"]);
    assert!(!dynamic.contains("(NEEDED)"), "{dynamic}");
    let undefined = said("nm", &["-D", "--undefined-only"]);
    assert_eq!(undefined.trim(), "");
    let defined = said("nm", &["-D", "--defined-only"]);
    for name in ["la_version", "la_objsearch"] {
        assert!(defined.contains(name), "{defined}");
    }
    // With these functions, the loader would take the slow path for every call or every symbol.
    for name in ["la_pltenter", "la_pltexit", "gnu_pltenter", "gnu_pltexit", "la_symbind"] {
        assert!(!defined.contains(name), "{defined}");
    }
}

#[test]
fn a_program_without_the_variable_runs_as_ever() {
    for environment in [None, Some(""), Some("/nonexistent")] {
        let mut program = Command::new("/bin/echo");
        program.arg("here").env("LD_AUDIT", library()).env_remove("ADVERB_REPLACE");
        if let Some(value) = environment {
            program.env("ADVERB_REPLACE", value);
        }
        let output = program.output().expect("it runs");
        assert_eq!((output.stdout, output.stderr), (b"here\n".to_vec(), Vec::new()));
    }
}
