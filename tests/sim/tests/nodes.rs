//! Worlds of nodes: seeds pass, repeat exactly, and reach enough.
use adverb_sim::node::{Config, World, run};

/// Few seeds, as this runs without optimisation; `make sim` runs more.
const SEEDS: u64 = 300;

/// CQN-1, CQN-2, CQN-3, CQN-4, CQN-5, CQN-6: the naive queue determines the events that are due.
#[test]
fn seeds_pass() {
    let (mut completions, mut events) = (0, 0);
    for seed in 0..SEEDS {
        let report = run(&Config::draw(seed));
        assert_eq!(report.failure, None, "seed {seed}");
        completions += report.completions;
        events += report.events;
    }
    assert!(completions > 50 * SEEDS, "{completions} completions in {SEEDS} worlds");
    assert!(events > 10 * SEEDS, "{events} events in {SEEDS} worlds");
}

/// In these worlds a responder that forgets an ACK held for the next poll makes the requester ask
/// for the answer.
#[test]
fn held_acks_leave() {
    for seed in [543, 959, 2601, 3176] {
        let report = run(&Config::draw(seed));
        assert_eq!((report.failure, report.asked), (None, 0), "seed {seed}");
    }
}

#[test]
fn a_seed_means_the_same_each_time() {
    for seed in 0..40 {
        let config = Config::draw(seed);
        let traced = World::new(&config).traced().run();
        // A trace changes nothing.
        assert_eq!(run(&config).hash, traced.hash, "seed {seed}");
        assert!(!traced.trace.is_empty());
    }
    assert_ne!(run(&Config::draw(1)).hash, run(&Config::draw(2)).hash);
}

/// A broken generator would pass all other tests.
#[test]
fn seeds_reach_every_kind_of_sleep_and_end() {
    let mut seen = String::new();
    for seed in 0..SEEDS {
        seen += &World::new(&Config::draw(seed)).traced().run().trace.join("\n");
    }
    for due in [
        "at the sockets: false",
        "at the sockets: true",
        "sleeps: Take",
        "sleeps: Call(true)",
        ": Solicited",
        "destroyed: true",
        "destroyed: false",
        "is moderated",
        "beside Some(Requests)",
        "beside Some(Packets)",
        "RdmaRead",
        "RecvRdmaWithImm",
        "FetchAdd",
        "CompSwap",
    ] {
        assert!(seen.contains(due), "no seed of {SEEDS} leads to {due:?}");
    }
}
