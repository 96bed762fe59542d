//! rxe and Adverb side by side in one virtual machine: the same perftest programs, two processes each, first on `rxe0`, then on the
//! drop-in libraries over the machine's loopback interface (wire), then as they are on one host. Prints a table with ratios, each
//! the median of those within a round.
//!
//! usage: beside [--rounds N] [--write FILE]; 3 rounds, and no file. `$ADVERB` names the command to measure. Where KVM does not boot
//! the machine is emulated: then only the ratios mean something.
#![forbid(unsafe_code)]

mod machine;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

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
    match options().and_then(|o| measure(&o)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("beside: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Rounds, and the file to write the table to.
struct Options {
    rounds: usize,
    file: Option<PathBuf>,
}

fn options() -> Result<Options, String> {
    let mut found = Options { rounds: 3, file: None };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        match arg.as_str() {
            "--rounds" => found.rounds = value.parse().map_err(|e| format!("--rounds {value}: {e}"))?,
            "--write" => found.file = Some(value.into()),
            _ => return Err(format!("{arg} is unknown; usage: beside [--rounds N] [--write FILE]")),
        }
    }
    if found.rounds == 0 { Err("--rounds 0 measures nothing".into()) } else { Ok(found) }
}

/// Ours divided by rxe's, or the other way for what is to be small, by rounds.
struct Ours {
    values: Vec<f64>,
    ratios: Vec<f64>,
}

fn measure(options: &Options) -> Result<(), String> {
    let start = Instant::now();
    let revision = adverb_bench::machine::revision();
    let adverb = process::adverb()?;
    machine::install(&adverb)?;
    let mut table = format!(
        "| perftest, both processes in the machine | unit | rxe | wire | to rxe | ≥ {BAR} | same host | to rxe |\n\
         |---|---|--:|--:|--:|--:|--:|--:|\n"
    );
    for row in ROWS {
        let mut rxe = Vec::new();
        let mut ours = [Side::Wire, Side::Host].map(|side| (side, Ours { values: vec![], ratios: vec![] }));
        for _ in 0..options.rounds {
            let theirs = machine::run(Side::Rxe, row.program, row.flags, row.column)?;
            rxe.push(theirs);
            for (side, found) in &mut ours {
                let value = machine::run(*side, row.program, row.flags, row.column)?;
                found.values.push(value);
                found.ratios.push(if row.unit == "µs" { theirs / value } else { value / theirs });
            }
        }
        let [wire, host] = ours.map(|(_, found)| (median(found.values), median(found.ratios)));
        let met = if wire.1 >= BAR { "yes" } else { "no" };
        let line = format!(
            "| `{} {}` | {} | {:.3} | {:.3} | {:.2} | {met} | {:.3} | {:.2} |\n",
            row.program,
            row.flags,
            row.unit,
            median(rxe),
            wire.0,
            wire.1,
            host.0,
            host.1
        );
        eprint!("{line}");
        table += &line;
    }
    let command = "make interop-bench";
    let heading = adverb_bench::machine::describe(&revision, command, &["perftest"], start.elapsed());
    let text = format!("{heading}- In the machine: {}\n\n{}", machine::kernel()?, table.trim_end());
    println!("{text}");
    match &options.file {
        Some(file) => adverb_bench::report::write(file, "rxe", &text),
        None => Ok(()),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
