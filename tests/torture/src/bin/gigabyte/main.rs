//! A gigabyte between two processes under each fault, every byte checked.
//!
//! `gigabyte [--mib N] [--short | --fault FAULT] [--write FILE]` moves N MiB (default: 1024) by
//! RDMA Write, Send and Read for each kind of fault ([`WEATHER`]). `--short` takes only the worst
//! kind, and `--fault` only the given faults, in the syntax of `ADVERB_FAULT`. The program prints a
//! table of goodput. The exit status is 1 if a byte was wrong, a request failed, or a requested
//! fault never happened. `--write` puts the table between its markers in FILE.
//!
//! Two processes of this program connect by address over the wire path. A message is one MiB, and
//! sixteen are outstanding ([`transfer`]). The receiver compares each byte with the expected byte
//! for its place in the stream ([`pattern`]).
#![forbid(unsafe_code)]

mod pattern;
mod transfer;

use std::path::PathBuf;
use std::process::ExitCode;

use adverb_bench::Result;
use adverb_bench::{pair, report};
use clap::Parser;
use transfer::{TransferOutcome, Verb};

/// Faults of packets: a name, and the value of `ADVERB_FAULT`.
const WEATHER: [(&str, &str); 11] = [
    ("none", ""),
    ("loss 0.1 %", "drop=0.1%"),
    ("loss 1 %", "drop=1%"),
    ("loss 5 %", "drop=5%"),
    ("duplication 1 %", "dup=1%"),
    ("reordering 5 %", "reorder=5%"),
    ("corruption 0.1 %", "corrupt=0.1%"),
    ("delay 1 ms ± 1 ms", "delay=1ms±1ms"),
    ("the same, loss 1 %", "delay=1ms±1ms,drop=1%"),
    ("the same, reordering 5 %", "delay=1ms±1ms,reorder=5%"),
    MIX,
];
const MIX: (&str, &str) =
    ("loss 5 %, dup 1 %, reorder 5 %, corrupt 0.1 %", "drop=5%,dup=1%,reorder=5%,corrupt=0.1%");

/// A gigabyte between two processes under each fault, every byte checked
#[derive(Parser)]
struct Options {
    /// How much
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Only the worst weather
    #[arg(long, conflicts_with = "fault")]
    short: bool,
    /// Only this weather, in the words of ADVERB_FAULT
    #[arg(long)]
    fault: Option<String>,
    /// Put the table between its markers in this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl Options {
    fn weather(&self) -> Vec<(&str, &str)> {
        match &self.fault {
            Some(fault) => vec![("as asked", fault)],
            None if self.short => vec![MIX],
            None => WEATHER.to_vec(),
        }
    }
}

fn main() -> ExitCode {
    let result = match pair::child_args().as_deref() {
        // The first argument is the processor.
        Some(args) => live(args.get(1..).unwrap_or_default()),
        None => all(&Options::parse()),
    };
    pair::ended("gigabyte", result)
}

/// Runs server or client.
fn live(args: &[String]) -> Result<()> {
    let [verb, mib, address @ ..] = args else { return Err(format!("no such child: {args:?}")) };
    let (verb, mib) = (Verb::named(verb)?, mib.parse().map_err(|e| format!("{mib}: {e}"))?);
    match address {
        [] => transfer::serve(verb, mib),
        [address, ..] => transfer::call(verb, mib, address),
    }
    .map_err(|e| e.to_string())
}

/// Runs every kind of fault with every verb.
fn all(options: &Options) -> Result<()> {
    let head = ["what befalls packets", "Write MB/s", "Send MB/s", "Read MB/s"];
    let mut rows = Vec::new();
    let mut good = true;
    for (name, fault) in options.weather() {
        let mut row = vec![name.to_string()];
        for verb in Verb::ALL {
            let outcome = pair(verb, options.mib, fault);
            let harmed = outcome.as_ref().map_or(0, |o| o.harmed);
            let outcome = match outcome {
                Ok(_) if harmed == 0 && !fault.is_empty() => {
                    Err("no packet met a fault".to_owned())
                }
                other => other,
            };
            match &outcome {
                Ok(o) => println!("{name}: {} {} MiB: {o}", verb.name(), options.mib),
                Err(why) => println!("{name}: {} {} MiB FAILED: {why}", verb.name(), options.mib),
            }
            good &= outcome.is_ok();
            row.push(outcome.map_or("failed".to_string(), |o| {
                format!("{:.1}", (options.mib << 20) as f64 / o.seconds / 1e6)
            }));
        }
        rows.push(row);
    }
    let table = report::table(&head, rows);
    print!("\n{table}");
    if let Some(file) = &options.write {
        report::write(file, "goodput", table.trim_end())?;
    }
    if good { Ok(()) } else { Err("a transfer failed".to_string()) }
}

/// Runs a transfer between two processes. The faults apply to both.
fn pair(verb: Verb, mib: u64, fault: &str) -> Result<TransferOutcome> {
    let mib = mib.to_string();
    let fault = (!fault.is_empty()).then(|| format!("{fault},seed=7"));
    let start = |args: &[&str]| {
        let env = [("ADVERB_PATH", Some("wire")), ("ADVERB_FAULT", fault.as_deref())];
        pair::talk_with(None, &args.iter().map(ToString::to_string).collect::<Vec<_>>(), &env)
    };
    let mut server = start(&[verb.name(), &mib])?;
    let address = server.line()?;
    let mut client = start(&[verb.name(), &mib, &address])?;
    let (one, two) =
        (TransferOutcome::parse(&client.line()?)?, TransferOutcome::parse(&server.line()?)?);
    client.end()?;
    server.end()?;
    Ok(TransferOutcome { seconds: one.seconds, harmed: one.harmed + two.harmed })
}
