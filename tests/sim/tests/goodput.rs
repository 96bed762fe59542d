//! Goodput under loss: figures that change only with the protocol, and their bounds.
use adverb_sim::goodput::{ManyToOne, Measured, Path, Transfer, Verb, measure, share};

const GIGABIT_10: u64 = 10_000_000_000;
const VERBS: [Verb; 3] = [Verb::Write, Verb::Send, Verb::Read];

fn goodput(verb: Verb, path: Path, seed: u64) -> (u64, Measured) {
    const BYTES: u64 = 4 << 20;
    let m = measure(&Transfer { verb, bytes: BYTES, path, seed });
    assert_eq!(m.failure, None, "{verb:?} {path:?} seed {seed}");
    (m.bytes_per_second(BYTES) / 1_000_000, m)
}

/// A loss costs round trips, not timeouts. Timeouts would make a slow connection a dead one.
#[test]
fn loss_does_not_become_collapse() {
    for verb in VERBS {
        for (loss, round_trip, least) in
            [(10, 20, 400), (50, 20, 100), (100, 20, 30), (50, 200, 30), (50, 2000, 4)]
        {
            let path = Path { loss, ..Path::new(GIGABIT_10, round_trip * 1000) };
            let sum: u64 = (1..=3).map(|seed| goodput(verb, path, seed).0).sum();
            assert!(
                sum / 3 >= least,
                "{verb:?}, {loss} in 1000 lost, {round_trip} µs: {} MB/s",
                sum / 3
            );
        }
    }
}

/// Packets that overtake each other are not lost, and the window grows with the delivered rate all
/// the same. Where jitter is half of each delay, a transfer has more than half the speed of a path
/// with the same mean delay that keeps the order. At the longest round trip the beginning takes
/// longer: a packet that is only late costs a slow start.
#[test]
fn jitter_is_not_loss() {
    let of = |verb, path, bytes| {
        let m = measure(&Transfer { verb, bytes, path, seed: 1 });
        assert_eq!((&m.failure, m.timeouts), (&None, 0), "{verb:?} {path:?}");
        m.bytes_per_second(bytes) / 1_000_000
    };
    for verb in VERBS {
        for (round_trip, mib, percent) in
            [(20_000, 24, 55), (200_000, 24, 55), (2_000_000, 256, 30)]
        {
            let steady = of(verb, Path::new(GIGABIT_10, round_trip), mib << 20);
            let path = Path { jitter: round_trip / 2, ..Path::new(GIGABIT_10, round_trip / 2) };
            let fast = of(verb, path, mib << 20);
            assert!(
                fast * 100 >= steady * percent,
                "{verb:?} {round_trip} ns: {fast} of {steady} MB/s"
            );
        }
    }
}

/// A router with little room does not drop packets forever. The window finds its size, and marks
/// keep it there without any loss.
#[test]
fn a_small_router_is_not_overrun() {
    for verb in VERBS {
        let path = Path { room: 16, ..Path::new(GIGABIT_10, 20_000) };
        let (fast, dropping) = goodput(verb, path, 1);
        assert!(fast > 600, "{verb:?}: {fast} MB/s, {dropping:?}");
        assert!(dropping.overflowed > 0 && dropping.timeouts == 0, "{dropping:?}");
        let path = Path { mark: Some(4), ..path };
        let (fast, marking) = goodput(verb, path, 1);
        assert!(fast > 600 && marking.cnps > 0, "{verb:?}: {fast} MB/s, {marking:?}");
        assert_eq!((marking.overflowed, marking.retransmitted), (0, 0), "{verb:?}");
    }
}

/// A long line through such a router keeps nearly half of its rate. After a loss ACKs come more
/// often, so bursts are short.
#[test]
fn a_small_router_on_a_long_line_is_not_overrun() {
    const BYTES: u64 = 40 << 20;
    for verb in VERBS {
        let path = Path { room: 16, ..Path::new(GIGABIT_10, 200_000) };
        let m = measure(&Transfer { verb, bytes: BYTES, path, seed: 1 });
        let fast = m.bytes_per_second(BYTES) / 1_000_000;
        assert!(m.failure.is_none() && fast > 560, "{verb:?}: {fast} MB/s, {m:?}");
    }
}

/// Without loss no packet is sent twice, and no answer is asked for twice.
#[test]
fn a_whole_network_costs_nothing() {
    for verb in VERBS {
        for round_trip in [20, 200, 2000] {
            let (_, m) = goodput(verb, Path::new(GIGABIT_10, round_trip * 1000), 1);
            assert_eq!(
                (m.retransmitted, m.probes, m.timeouts, m.cnps),
                (0, 0, 0, 0),
                "{verb:?} {round_trip}"
            );
        }
    }
}

/// A stream fills the line, at any round trip. The beginning counts.
#[test]
fn the_window_reaches_the_line() {
    for (round_trip, mib, least) in [(200_000, 32, 1150), (2_000_000, 128, 1000)] {
        for verb in VERBS {
            let path = Path::new(GIGABIT_10, round_trip);
            let m = measure(&Transfer { verb, bytes: mib << 20, path, seed: 1 });
            let fast = m.bytes_per_second(mib << 20) / 1_000_000;
            assert!(m.failure.is_none() && fast >= least, "{verb:?} {round_trip} ns: {fast} MB/s");
        }
    }
}

/// Eight senders share a line and a router with room for 256 packets: nine tenths of the fairness
/// index (Jain), and 0.85 of the line's payload.
#[test]
fn many_senders_share_a_line() {
    for round_trip in [20_000, 200_000, 2_000_000] {
        let begin = 100_000_000;
        let path = Path::new(GIGABIT_10, round_trip);
        let window = [begin, begin + 200_000_000];
        let s = share(&ManyToOne { senders: 8, path, window, stagger: 0, seed: 1 });
        assert_eq!((&s.failure, s.timeouts), (&None, 0), "{round_trip} ns");
        let fast = s.bytes_per_second() / 1_000_000;
        assert!(
            s.fairness() >= 900 && fast >= 1037,
            "{round_trip} ns: {} {fast} MB/s {s:?}",
            s.fairness()
        );
    }
}
