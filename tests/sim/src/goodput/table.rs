//! The table of goodput over loss and round trip.
use super::{Measured, Path, Transfer, Verb, measure};
use std::fmt::Write;

/// Rate of the table's link, in bits per second.
const RATE: u64 = 10_000_000_000;
/// Round trips in microseconds: a rack, a data centre, a region.
const ROUND_TRIPS: [u64; 3] = [20, 200, 2000];

/// A kind of fault: its name, and the change of a path without faults.
type Weather = (&'static str, fn(Path) -> Path);

fn weather() -> [Weather; 12] {
    [
        ("none", |p| p),
        ("loss 0.1 %", |p| Path { loss: 1, ..p }),
        ("loss 1 %", |p| Path { loss: 10, ..p }),
        ("loss 5 %", |p| Path { loss: 50, ..p }),
        ("loss 10 %", |p| Path { loss: 100, ..p }),
        ("loss 5 %, dup 1 %, reorder 5 %, corrupt 0.1 %", |p| Path {
            loss: 50,
            duplicate: 10,
            reorder: 50,
            corrupt: 1,
            ..p
        }),
        ("reorder 5 %", |p| Path { reorder: 50, ..p }),
        ("jitter of the round trip", jittered),
        ("the same, loss 1 %", |p| Path { loss: 10, ..jittered(p) }),
        ("the same, loss 5 %", |p| Path { loss: 50, ..jittered(p) }),
        ("a router with room for 16 packets", |p| Path { room: 16, ..p }),
        ("the same, marking from 4", |p| Path { room: 16, mark: Some(4), ..p }),
    ]
}

/// Jitter is half of each delay: between nothing and twice its mean. The mean round trip stays the
/// same.
fn jittered(p: Path) -> Path {
    Path { round_trip: p.round_trip / 2, jitter: p.round_trip / 2, ..p }
}

/// Bytes of a transfer at a round trip. A longer round trip gets a longer transfer, so that the
/// figure shows a stream and not its beginning.
fn length(bytes: u64, round_trip: u64) -> u64 {
    bytes * (round_trip / ROUND_TRIPS[0]).min(32)
}

/// The table as text. A figure at the shortest round trip comes from a transfer of `bytes` bytes.
#[must_use]
pub fn table(bytes: u64) -> String {
    let mut out = String::from(
        "| what befalls packets | round trip | Write MB/s | Send MB/s | Read MB/s |\n",
    );
    out.push_str("|---|---:|---:|---:|---:|\n");
    for (name, change) in weather() {
        for round_trip in ROUND_TRIPS {
            let path = change(Path::new(RATE, round_trip * 1000));
            let bytes = length(bytes, round_trip);
            let cell = |verb| cell(&measure(&Transfer { verb, bytes, path, seed: 1 }), bytes);
            let [w, s, r] = [Verb::Write, Verb::Send, Verb::Read].map(cell);
            let _ = writeln!(out, "| {name} | {round_trip} µs | {w} | {s} | {r} |");
        }
    }
    out
}

fn cell(m: &Measured, bytes: u64) -> String {
    match &m.failure {
        Some(why) => format!("failed: {why}"),
        None => {
            let tenths = m.bytes_per_second(bytes) / 100_000;
            format!("{}.{}", tenths / 10, tenths % 10)
        }
    }
}
