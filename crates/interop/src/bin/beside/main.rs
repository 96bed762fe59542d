//! rxe and Adverb side by side in one virtual machine: the same perftest programs, two processes each, first on `rxe0` and then on the
//! drop-in libraries over the machine's loopback interface. Prints a table with ratios.
//!
//! usage: beside [--rounds N] (3). `$ADVERB` names the command to measure. Where KVM does not boot the machine is emulated: then
//! only the ratios mean something.
#![forbid(unsafe_code)]

mod machine;

use std::process::ExitCode;

use adverb_foreign::process;
use adverb_interop::vm;
use machine::Side;

/// Adverb is to be at least so many times as good as rxe.
const BAR: f64 = 3.0;

/// A program of perftest and what is read from its line of results.
#[derive(Clone, Copy)]
struct Row {
    program: &'static str,
    flags: &'static str,
    column: usize,
    unit: &'static str,
}

const fn rate(program: &'static str, flags: &'static str) -> Row {
    Row { program, flags, column: 3, unit: "MB/s" }
}

const fn messages(program: &'static str, flags: &'static str) -> Row {
    Row { program, flags, column: 4, unit: "Mmsg/s" }
}

/// `t_typical`, the median.
const fn latency(program: &'static str, flags: &'static str) -> Row {
    Row { program, flags, column: 4, unit: "µs" }
}

const ROWS: &[Row] = &[
    messages("ib_send_bw", "-s 64 -n 5000"),
    rate("ib_send_bw", "-s 4096 -n 2000"),
    rate("ib_send_bw", "-s 65536 -n 500"),
    rate("ib_send_bw", "-s 1048576 -n 60"),
    messages("ib_write_bw", "-s 64 -n 5000"),
    rate("ib_write_bw", "-s 4096 -n 2000"),
    rate("ib_write_bw", "-s 65536 -n 500"),
    rate("ib_write_bw", "-s 1048576 -n 60"),
    rate("ib_read_bw", "-s 4096 -n 2000"),
    rate("ib_read_bw", "-s 65536 -n 500"),
    rate("ib_read_bw", "-s 1048576 -n 60"),
    messages("ib_atomic_bw", "-n 2000"),
    latency("ib_send_lat", "-s 8 -n 2000"),
    latency("ib_send_lat", "-s 8 -n 1000 -e"),
    latency("ib_write_lat", "-s 8 -n 2000"),
    latency("ib_read_lat", "-s 8 -n 1000"),
    latency("ib_atomic_lat", "-n 1000"),
];

fn main() -> ExitCode {
    if !vm::inside() {
        return vm::again_beside(&["--cpus", "2", "--memory", "2048"]);
    }
    match rounds().and_then(measure) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("beside: {why}");
            ExitCode::FAILURE
        }
    }
}

fn rounds() -> Result<usize, String> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(3),
        ["--rounds", n] => n.parse().map_err(|e| format!("--rounds {n}: {e}")),
        _ => Err("usage: beside [--rounds N]".into()),
    }
}

fn measure(rounds: usize) -> Result<(), String> {
    let adverb = process::adverb()?;
    machine::install(&adverb)?;
    println!("| perftest, both processes in the machine | unit | rxe | adverb | ratio | ≥ {BAR} |");
    println!("|---|---|--:|--:|--:|--:|");
    let mut below = Vec::new();
    for row in ROWS {
        let (mut rxe, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            rxe.push(machine::run(Side::Rxe, row.program, row.flags, row.column)?);
            ours.push(machine::run(Side::Adverb, row.program, row.flags, row.column)?);
        }
        let (rxe, ours) = (median(rxe), median(ours));
        let ratio = if row.unit == "µs" { rxe / ours } else { ours / rxe };
        let name = format!("{} {}", row.program, row.flags);
        let met = if ratio >= BAR { "yes" } else { "no" };
        println!("| {name} | {} | {rxe:.3} | {ours:.3} | {ratio:.2} | {met} |", row.unit);
        if ratio < BAR {
            below.push(name);
        }
    }
    println!(
        "\nbelow {BAR} times rxe: {}",
        if below.is_empty() { "none".to_string() } else { below.join(", ") }
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
