//! rxe and Adverb side by side in one virtual machine. The same programs, two processes each, run
//! first on `rxe0`, then on the drop-in libraries over the machine's loopback interface (wire), and
//! then on the default path of one host. The program prints a table with ratios, each the median of
//! the ratios within a round. The figures are perftest's, and those of the connection managers:
//! connections per second, and the time until the first byte arrives.
//!
//! usage: beside [--rounds N] [--part NAME] [--write FILE]; the default is 3 rounds, all parts, and
//! no file. `$ADVERB` names the command under test. If KVM does not boot, the machine is emulated,
//! and only the ratios have a meaning.
#![forbid(unsafe_code)]

mod machine;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use adverb_bench::report::{cell, table, value};
use adverb_bench::series::Samples;
use adverb_foreign::process;
use adverb_interop::vm;
use clap::{Parser, ValueEnum};
use machine::Side;

/// Adverb must be better than rxe by at least this factor.
const BAR: f64 = 3.0;

/// A program and the way to read its output.
#[derive(Clone, Copy)]
struct Row {
    program: &'static str,
    flags: &'static str,
    unit: &'static str,
    read: Read,
}

/// How the output of a program is read.
#[derive(Clone, Copy)]
enum Read {
    /// A column of perftest's results.
    Column(usize),
    /// The steps of cmtime, with this many connections at once.
    Connections(u32),
    /// The time to the first byte of the other end, the median of this many connections.
    FirstByte(u32),
}

const fn rate(program: &'static str, flags: &'static str) -> Row {
    Row { program, flags, unit: "MB/s", read: Read::Column(3) }
}

const fn messages(program: &'static str, flags: &'static str) -> Row {
    Row { program, flags, unit: "Mmsg/s", read: Read::Column(4) }
}

/// `t_typical`, the median.
const fn latency(program: &'static str, flags: &'static str) -> Row {
    Row { program, flags, unit: "µs", read: Read::Column(4) }
}

impl Row {
    fn measure(self, side: Side) -> Result<f64, String> {
        match self.read {
            Read::Column(column) => machine::run(side, self.program, self.flags, column),
            Read::Connections(count) => machine::connections(side, count),
            Read::FirstByte(count) => machine::first_byte(side, count),
        }
    }
}

/// A table of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OwnTable {
    /// perftest's figures
    Perftest,
    /// Connections by address
    Connections,
}

impl OwnTable {
    fn rows(self) -> &'static [Row] {
        match self {
            OwnTable::Perftest => PERFTEST,
            OwnTable::Connections => CONNECTIONS,
        }
    }

    /// The markers of the table in the file, and the packages of its programs.
    const fn about(self) -> (&'static str, &'static [&'static str]) {
        match self {
            OwnTable::Perftest => ("rxe", &["perftest"]),
            OwnTable::Connections => ("rxe-connections", &["rdmacm-utils", "librdmacm-dev"]),
        }
    }
}

const PERFTEST: &[Row] = &[
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

const CONNECTIONS: &[Row] = &[
    Row { program: "cmtime", flags: "-c 200", unit: "connections/s", read: Read::Connections(200) },
    Row { program: "first_byte", flags: "100", unit: "µs", read: Read::FirstByte(100) },
];

fn main() -> ExitCode {
    // A wrong command line is reported here, before a machine boots.
    let options = Options::parse();
    if !vm::inside() {
        return vm::again_beside(&["--cpus", "2", "--memory", "2048"]);
    }
    match measure_all(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("beside: {why}");
            ExitCode::FAILURE
        }
    }
}

/// rxe and Adverb side by side in one virtual machine
#[derive(Parser)]
struct Options {
    /// Rounds, one at least
    #[arg(long, default_value = "3")]
    rounds: NonZeroUsize,
    /// One of the tables alone
    #[arg(long, value_enum)]
    part: Option<OwnTable>,
    /// Put the tables between their markers in this file
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn measure_all(options: &Options) -> Result<(), String> {
    let revision = adverb_bench::machine::revision();
    machine::install(&process::adverb()?)?;
    for part in OwnTable::value_variants() {
        if options.part.is_none_or(|p| p == *part) {
            measure(*part, &revision, options)?;
        }
    }
    Ok(())
}

fn measure(part: OwnTable, revision: &str, options: &Options) -> Result<(), String> {
    let start = Instant::now();
    let bar = format!("≥ {BAR}");
    let head = ["both processes in the machine", "unit", "rxe", "wire", "to rxe", &bar];
    let mut rows = Vec::new();
    for row in part.rows() {
        let mut samples = Samples::new(options.rounds.get());
        for round in 0..samples.rounds {
            for side in [Side::Rxe, Side::Wire, Side::Host] {
                samples.add(side, round, row.measure(side)?);
            }
        }
        // For figures that should be small the ratio is inverted.
        let ratio = |side| match row.unit {
            "µs" => samples.ratio(&Side::Rxe, &[side], f64::min),
            _ => samples.ratio(&side, &[Side::Rxe], f64::max),
        };
        let figure = |side| value(&samples, &side, 1.0);
        let to_rxe = |side| cell(ratio(side), samples.rounds);
        let met = ratio(Side::Wire).is_some_and(|s| s.median >= BAR);
        rows.push(vec![
            format!("`{} {}`", row.program, row.flags),
            row.unit.to_string(),
            figure(Side::Rxe),
            figure(Side::Wire),
            to_rxe(Side::Wire),
            if met { "yes" } else { "no" }.to_string(),
            figure(Side::Host),
            to_rxe(Side::Host),
        ]);
        eprintln!("{}", rows[rows.len() - 1].join(" | "));
    }
    let table = table(&head.into_iter().chain(["same host", "to rxe"]).collect::<Vec<_>>(), rows);
    let (markers, packages) = part.about();
    let command = "make interop-bench";
    let heading = adverb_bench::machine::describe(revision, command, packages, start.elapsed());
    let text = format!("{heading}- In the machine: {}\n\n{}", machine::kernel()?, table.trim_end());
    println!("{text}");
    match &options.write {
        Some(file) => adverb_bench::report::write(file, markers, &text),
        None => Ok(()),
    }
}
