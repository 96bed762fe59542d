//! The programs beside `torture` and `soak`, in their short forms.
#![forbid(unsafe_code)]

use std::time::Duration;

use adverb_bench::programs::number_after;
use adverb_foreign::process::Program;

/// Runs a program, requires success, and returns the output.
fn run(program: &str, args: &[&str]) -> String {
    let out = Program::new(program, args).bare().run(Duration::from_secs(300)).unwrap();
    out.require_ok().unwrap();
    out.text
}

fn number(text: &str, name: &str) -> f64 {
    number_after(text, name).unwrap_or_else(|| panic!("no {name} in\n{text}"))
}

/// CQN-4, CQN-12, CHN-3, CHN-4: every event has its arm and completion, and every completion is
/// polled once.
#[test]
fn cqn_12_every_armed_notification_is_accounted_for() {
    let text = run(env!("CARGO_BIN_EXE_armed"), &["--count", "30000"]);
    assert!(number(&text, "armed_events") >= 30_000.0, "{text}");
    assert!(number(&text, "armed_wire") > 0.0, "{text}");
    assert_eq!(number(&text, "armed_wrong"), 0.0, "{text}");
}

/// Many queue pairs and a mesh of processes: every message is verified on arrival.
#[test]
fn many_queue_pairs_and_processes_lose_nothing() {
    let text = run(env!("CARGO_BIN_EXE_scale"), &["--short"]);
    assert!(number(&text, "pair_qp_pss_0") > 0.0, "{text}");
    assert!(
        number(&text, "pair_send_ratio_500") > 0.0 && number(&text, "pair_write_500") > 0.0,
        "{text}"
    );
    assert_eq!(number(&text, "mesh_messages"), 12.0 * 11.0 * 20.0, "{text}");
}

/// Every byte arrives under the worst faults, by Write, Send and Read, and faults did happen.
#[test]
fn many_megabytes_cross_the_storm() {
    let text = run(env!("CARGO_BIN_EXE_gigabyte"), &["--mib", "64", "--short"]);
    let good = text.lines().filter(|l| l.contains(" 64 MiB: ") && l.ends_with("packets harmed"));
    assert_eq!(good.count(), 3, "{text}");
}

/// Twenty processes are killed in the middle of their traffic with a survivor. The program checks
/// the survivor's results, memory and resources.
#[test]
fn a_survivor_outlives_killed_processes() {
    let text = run(env!("CARGO_BIN_EXE_kill"), &["--rounds", "20"]);
    let line = text.lines().find(|l| l.starts_with("killed: 20 processes"));
    assert!(line.is_some_and(|l| !l.contains(" 0 of them in mid-traffic")), "{text}");
}
