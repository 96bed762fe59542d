//! C programs that use the headers and the library: `tests/c` and the example of the chapter.

use std::path::Path;
use std::process::Command;

mod common;
use common::c::{build, library, run, source};

/// The values of `ADVERB_NDK_PENDING_*`.
const MODES: [&str; 3] = ["0", "1", "2"];

/// The documentation's example through the C interface. One of two deferred requests fails in line,
/// and exactly one completion comes (DEF-7). Each complete chain is committed once (DEF-8).
#[test]
fn def_7_def_8_deferred_chains() {
    let said = run(&build("deferred", &[source("deferred")]), &[]);
    for line in [
        "first fast register, deferred: STATUS_SUCCESS",
        "second fast register, deferred: STATUS_INVALID_PARAMETER",
        "completions: 1, of the first fast register",
        "32 deferred writes: 1 hand-over",
    ] {
        assert!(said.contains(line), "no {line:?} in\n{said}");
    }
}

/// The example in the repository does what its output says (DEF-7).
#[test]
fn def_7_the_example() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/ndk_deferred.c");
    let said = run(&build("ndk_deferred", &[file]), &[]);
    let results: Vec<&str> =
        said.lines().filter(|l| l.contains("completion")).map(str::trim).collect();
    let good = |of: &str| format!("completion of the {of}: STATUS_SUCCESS");
    let (first, second, send) =
        (good("first fast register"), good("second fast register"), good("send"));
    let expected = [&first, &second, &send, "3 completions in all", &first, "1 completion in all"];
    assert_eq!(results, expected, "{said}");
    assert!(said.contains("hand-overs to the device: 1\n"), "{said}");
}

/// Connections, transfers, windows, fast registration and invalidation (NDK-5, NDK-6), in every
/// mode of completion (NDK-7).
#[test]
fn ndk_6_ndk_7_ping_pong() {
    let program = build("pingpong", &[source("pingpong")]);
    for mode in MODES {
        run(&program, &[mode]);
    }
}

/// TRU-6: the library's log escapes control characters of the terminal. The name of the capture has
/// an escape sequence and a newline.
#[test]
fn tru_6_a_name_in_the_log_does_not_steer_the_terminal() {
    let program = build("deferred_logged", &[source("deferred")]);
    let capture = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("evil-{}\u{1b}[31m\nforged", std::process::id()));
    let mut command = Command::new(program);
    command.env("ADVERB_LOG", "info").env("ADVERB_CAPTURE", &capture);
    command.env("LD_LIBRARY_PATH", library().parent().expect("a directory"));
    let output = command.output().expect("the program starts");
    std::fs::remove_file(&capture).expect("a capture");
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    let line = said.lines().find(|line| line.starts_with("adverb: info: packets are captured in "));
    assert!(line.is_some_and(|line| line.ends_with("\\u001b[31m\\u000aforged")), "{said:?}");
    assert!(!said.contains(|c: char| c.is_control() && !"\n\t".contains(c)), "{said:?}");
}

/// Refused connections, and connections over a shared endpoint (NDK-7).
#[test]
fn ndk_7_connections() {
    let program = build("connect", &[source("connect")]);
    for mode in MODES {
        run(&program, &[mode]);
    }
}

/// Closes from inside callbacks (NDK-3, NDK-7).
#[test]
fn ndk_3_ndk_7_closing_from_callbacks() {
    let program = build("lifetime", &[source("lifetime")]);
    for mode in MODES {
        run(&program, &[mode]);
    }
}

/// Shared receive queues report once when they run low (NDK-7).
#[test]
fn ndk_7_shared_receive_queue() {
    let program = build("srq", &[source("srq")]);
    for mode in MODES {
        run(&program, &[mode]);
    }
}

/// Versions, reasons of failures and disconnects (NDK-8), and depths of queues (NDK-9).
#[test]
fn ndk_8_ndk_9_reasons_and_depths() {
    let program = build("reasons", &[source("reasons")]);
    for mode in MODES {
        run(&program, &[mode]);
    }
}

/// Programs need the library by a SONAME that later releases keep (NDK-8).
#[test]
fn ndk_8_the_library_says_its_name() {
    let file = std::fs::read(library()).expect("the library");
    assert!(file.windows(15).any(|w| w == b"\0libndkpi.so.1\0"), "no SONAME");
    let program = std::fs::read(build("named", &[source("srq")])).expect("the program");
    assert!(
        program.windows(15).any(|w| w == b"\0libndkpi.so.1\0"),
        "the program needs another name"
    );
}

/// Calls that break a rule are refused with a status and do no harm (NDK-7).
#[test]
fn ndk_7_misuse_is_refused() {
    run(&build("misuse", &[source("misuse")]), &[]);
}
