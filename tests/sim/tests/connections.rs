//! Worlds of the connection manager: seeds pass, repeat exactly, and detect a deliberate mistake.
use adverb_sim::cm::{Config, World, run};

/// Few seeds, as this runs without optimisation; `make sim` runs more.
const SEEDS: u64 = 300;

/// CM-1.
#[test]
fn seeds_pass() {
    let mut made = 0;
    for seed in 0..SEEDS {
        let report = run(&Config::draw(seed));
        assert_eq!(report.failure, None, "seed {seed}");
        made += report.made;
    }
    assert!(made > SEEDS, "{made} connections in {SEEDS} worlds");
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

/// The seeds reach every kind of end.
#[test]
fn seeds_reach_every_end() {
    let mut seen = String::new();
    for seed in 0..SEEDS {
        seen += &World::new(&Config::draw(seed)).traced().run().trace.join("\n");
    }
    for due in [
        "Request",
        "Reply",
        "Established",
        "Disconnected by the peer",
        "Disconnected, confirmed",
        "Disconnected(Unanswered",
        "Rejected: ",
        "Unanswered { message: Req",
        "Unanswered { message: Rep",
        "TimewaitExit",
        "SidrReply",
        " dies",
    ] {
        assert!(seen.contains(due), "no seed of {SEEDS} leads to {due:?}");
    }
}

/// The oracle detects a program that uses a queue pair number again before the time-wait is over.
#[test]
fn numbers_used_too_early_are_noticed() {
    let early = |seed| run(&Config { hasty: true, numbers: 1, delay: 100, ..Config::draw(seed) });
    let noticed =
        (0..SEEDS).filter_map(|seed| early(seed).failure).find(|why| why.contains("a packet of"));
    assert!(noticed.is_some(), "the oracle sees nothing");
}
