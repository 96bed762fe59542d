//! The programs of this crate in their short forms. Each must run, with right results as far as
//! these are independent of time.
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
