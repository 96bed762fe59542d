//! Eight threads with every byte checked, and children that use the device after a fork.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cases::rig;
use adverb_foreign::suite::{Case, by_length, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("eight_threads_on_own_and_shared_objects", || {
            let seconds: u64 = std::env::var("ADVERB_THREADS_SECONDS")
                .ok()
                .and_then(|s| s.parse().ok())
                .unwrap_or_else(|| by_length(20, 5));
            program("threads", &seconds.to_string(), seconds + 60, "ok threads")
        }),
        case("cancelled_threads_leave_nothing_locked", || {
            program("cancel", "2000", 120, "ok cancel")
        }),
        case("cancelled_waits_for_events_of_rdma_cm", || {
            let program = rig("cancel_cm", &["-lrdmacm"], &["100"])?;
            program.run_ok(Duration::from_secs(60))?.require_words(&["ok cancel cm"])
        }),
        case("calls_that_do_not_wait_are_no_cancellation_points/all_functions", || {
            cancel_calls("walk")
        }),
        case("calls_that_do_not_wait_are_no_cancellation_points/calls", || cancel_calls("calls")),
        case("waiting_on_what_is_destroyed", || program("orphans", "", 70, "ok orphans")),
        case("handles_used_after_their_end", || program("stale", "", 70, "ok stale")),
        case("plain_posts_beside_chains", || program("two_ways", "", 70, "ok two ways")),
        case("progress_threads_that_spin/the_program_sleeps", || {
            program("spinners", "200", 130, "ok spinners")
        }),
        case("fork_without_ibv_fork_init", || program("fork", "plain", 130, "ok fork")),
        case("fork_after_ibv_fork_init", || program("fork", "init", 130, "ok fork")),
        case("a_chain_of_seventy_processes", || program("generations", "", 300, "ok generations"))
            .once(),
        case("forks_of_two_that_are_connected", || program("fork_peers", "", 130, "ok fork peers")),
        case("a_fork_with_the_heap_registered", || {
            program("fork_peers", "heap", 130, "ok fork peers")
        }),
        case("TRU-3/nothing_of_the_dead_is_held/idle", || remains("idle")).once(),
        case("TRU-3/nothing_of_the_dead_is_held/in_mid_copy", || remains("copying")).once(),
        case("TRU-3/nothing_of_the_dead_is_held/beside_forks", || remains("forking")).once(),
        case("TRU-3/what_the_dead_had_sent_is_delivered", || remains("unread")).once(),
        case("TRU-3/what_a_peer_reaches", what_a_peer_reaches).once(),
    ]
}

fn cancel_calls(mode: &str) -> Verdict {
    let program = rig("cancel_calls", &["-lrdmacm", "-rdynamic"], &[mode])?;
    program.run_ok(Duration::from_secs(120))?.require_words(&[&format!("ok {mode}")])
}

/// Over the network nothing is shared, so there is nothing to check.
fn remains(how: &str) -> Verdict {
    program("remains", how, 130, "ok remains")
}

/// SECURITY.md says which memory a peer of the same user can read, and which variables prevent
/// this.
fn what_a_peer_reaches() -> Verdict {
    let ways = [
        ("local", "on", "reached"),
        ("local", "off", "out of reach"),
        ("wire", "on", "out of reach"),
    ];
    for (path, adopt, words) in ways {
        let program = rig("remains", &[], &["reach"])?.env("ADVERB_PATH", path);
        let out = program.env("ADVERB_ADOPT", adopt).run_ok(Duration::from_secs(130))?;
        out.require_words(&[&format!("unregistered memory is {words}")])?;
    }
    Ok(())
}

fn program(name: &str, arg: &str, limit: u64, words: &str) -> Verdict {
    let out = rig(name, &[], &[arg])?.run_ok(Duration::from_secs(limit))?;
    out.require_words(&[words])?;
    print!("{}", out.text);
    Ok(())
}
