//! The programs of this crate in their short forms. Each must run, with right results as far as
//! these are independent of time.
#![forbid(unsafe_code)]

use std::process::Command;

/// Runs a program, requires success, and returns the output.
fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        out.status.success(),
        "{program}: {}\n{text}{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    text
}

fn number(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|l| l.split(' ').next()?.parse().ok())
        .unwrap_or_else(|| panic!("no {name} in\n{text}"))
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

/// CHN-1, CHN-2: with both ways to sleep, every message of a ping-pong between two processes
/// arrives.
#[test]
fn chn_2_a_sleeping_process_is_woken() {
    let text = run(env!("CARGO_BIN_EXE_wake"), &["--ms", "50"]);
    assert!(number(&text, "cq_wake") > 0.0 && number(&text, "cq_wake_epoll") > 0.0, "{text}");
}

/// DEF-2, DEF-8: a chain of any length is one hand-over. Each request posted singly is a hand-over.
#[test]
fn def_8_a_chain_is_one_hand_over() {
    let text = run(env!("CARGO_BIN_EXE_chains"), &["--ms", "20"]);
    for length in [1, 8, 32, 128] {
        assert_eq!(number(&text, &format!("chain_{length}_deferred_handovers")), 1.0, "{text}");
        assert_eq!(
            number(&text, &format!("chain_{length}_singly_handovers")),
            f64::from(length),
            "{text}"
        );
    }
}

/// Sleeping queue pairs: the program fails when a message is lost before or after.
#[test]
fn idle_queue_pairs_carry_messages_before_and_after() {
    let text = run(env!("CARGO_BIN_EXE_idle"), &["--qps", "100", "--seconds", "1"]);
    assert_eq!(number(&text, "idle_qps"), 100.0, "{text}");
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

/// The C program verifies every byte and fails when one is wrong.
#[test]
fn limits_of_shared_memory_are_measured() {
    let text = run(
        env!("CARGO_BIN_EXE_limits"),
        &["--ms", "20", "shm_spin_512", "shm_put_4096", "shm_get_8", "shm_fadd"],
    );
    for name in ["shm_spin_512", "shm_put_4096", "shm_get_8", "shm_fadd"] {
        assert!(number(&text, name) > 0.0, "{text}");
    }
}

/// The program fails when a packet arrives with a wrong ICRC.
#[test]
fn the_lean_program_carries_packets_with_right_sums() {
    let text = run(env!("CARGO_BIN_EXE_limits"), &["--ms", "50", "lean_roce", "udp_spin_8"]);
    assert!(number(&text, "lean_roce") > 0.0 && number(&text, "udp_spin_8") > 0.0, "{text}");
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
