//! Connections by address compared with TCP in the same run. Two figures: connections per second
//! between two processes, one after the other, and the time from the first call until a byte of the
//! other end arrives (`c/first_byte.c`). Both are measured on both paths.
//!
//! `connect [--quick] [--runs N] [--no-write] [FILE]`; `$ADVERB` names the command under test.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use adverb_bench::items::Item;
use adverb_bench::programs::{PATH, number_after};
use adverb_bench::report::{Key, What, cell, ratio, table, value};
use adverb_bench::rounds::{Options, fill, rounds};
use adverb_bench::series::{Samples, Series};
use adverb_bench::{Result, cc};
use adverb_foreign::pair::{Listener, Pair};
use adverb_foreign::process::Program;

/// Rounds of a full run.
const RUNS: usize = 5;
/// Connections of a round, full and quick.
const COUNT: [usize; 2] = [1000, 200];
const LIMIT: Duration = Duration::from_secs(60);
/// After this time the rest is left out, and the report says so.
const BUDGET: Duration = Duration::from_secs(240);

/// The kind of connection between two processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ConnectionKind {
    Tcp,
    Local,
    Wire,
}

const WAYS: [(ConnectionKind, &str); 3] = [
    (ConnectionKind::Tcp, "TCP"),
    (ConnectionKind::Local, "rdma_cm, same host"),
    (ConnectionKind::Wire, "rdma_cm, wire (`ADVERB_PATH=wire`)"),
];

/// Seconds per connection.
fn connection(name: &str) -> Key {
    Key::new(name, 0, What::Latency)
}

/// Seconds until the first byte.
fn first_byte(name: &str) -> Key {
    Key::new(format!("{name}, first byte"), 0, What::Latency)
}

fn main() -> ExitCode {
    // A request to connect may reach any process that shares the port, including programs of
    // others.
    adverb_foreign::alone::be_alone();
    let commands = ["scripts/bench connect", "scripts/bench connect --quick"];
    fill("connect", commands, &["librdmacm-dev"], measure)
}

/// Runs all rounds. Returns the report and the failures.
fn measure(options: &Options) -> Result<(String, Vec<String>)> {
    let count = COUNT[usize::from(options.quick)];
    let mut samples = Samples::new(options.runs(RUNS));
    let items = WAYS.map(|(way, name)| {
        Item::new(name, move |_, _| {
            let (rate, first) = once(way, count)?;
            Ok(vec![(connection(name), 1.0 / rate), (first_byte(name), first)])
        })
    });
    rounds(&items, BUDGET, &mut samples);
    eprintln!();
    Ok((format!("\n{}", report(&samples)), samples.failures))
}

/// A server and a client: connections per second, and seconds until the first byte.
fn once(way: ConnectionKind, count: usize) -> Result<(f64, f64)> {
    let program = cc::program("first_byte")?.display().to_string();
    let end = |side: &str| {
        let transport = if way == ConnectionKind::Tcp { "tcp" } else { "rdma" };
        let line = Program::new(program.clone(), &[transport, side, "127.0.0.1", "PORT"]);
        match way {
            ConnectionKind::Tcp => line.bare(),
            ConnectionKind::Local => line.env(PATH, "local"),
            ConnectionKind::Wire => line.env(PATH, "wire"),
        }
    };
    let pair = Pair::by_address(end("server"), end("client").arg(count.to_string()), LIMIT);
    let pair = if way == ConnectionKind::Tcp { pair.listener(Listener::Socket) } else { pair };
    let (server, client) = pair.listening()?;
    let client = client.run(LIMIT)?;
    client.require_ok().map_err(|why| format!("{why}\nserver: {}", server.text()))?;
    let found = |name| number_after(&client.text, name).ok_or_else(|| client.describe());
    Ok((found("connections")?, found("first_byte")?))
}

fn report(samples: &Samples<Key>) -> String {
    let head =
        ["127.0.0.1, one after the other", "connections/s", "to TCP", "first byte, µs", "to TCP"];
    let show = |series: Option<Series>| cell(series, samples.rounds);
    let (_, tcp) = WAYS[0];
    let rows = WAYS.map(|(_, name)| {
        // Ratios of times, so that a ratio above one means slower in both columns.
        let ratio = |key: fn(&str) -> Key| show(ratio(samples, &key(name), &[key(tcp)]));
        let rate = samples.series(&connection(name)).map(|s| Series {
            median: 1.0 / s.median,
            min: 1.0 / s.max,
            max: 1.0 / s.min,
            count: s.count,
        });
        vec![
            name.to_string(),
            show(rate),
            ratio(connection),
            value(samples, &first_byte(name), 1e6),
            ratio(first_byte),
        ]
    });
    table(&head, rows)
}
