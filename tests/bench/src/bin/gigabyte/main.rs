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
mod report;
mod transfer;

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

use adverb_bench::Result;
use clap::{Parser, Subcommand};
use transfer::{Outcome, Verb};

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
#[command(args_conflicts_with_subcommands = true)]
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
    write: Option<String>,
    #[command(subcommand)]
    role: Option<Role>,
}

/// What one of the two processes is started with.
#[derive(Subcommand)]
enum Role {
    #[command(hide = true)]
    Serve { verb: String, mib: u64 },
    #[command(hide = true)]
    Call { verb: String, mib: u64, address: String },
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
    let options = Options::parse();
    let outcome = match &options.role {
        Some(Role::Serve { verb, mib }) => role(verb, *mib, None),
        Some(Role::Call { verb, mib, address }) => role(verb, *mib, Some(address)),
        None => all(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("gigabyte: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs server or client.
fn role(verb: &str, mib: u64, address: Option<&str>) -> Result<bool> {
    let verb = Verb::named(verb)?;
    let outcome = match address {
        None => transfer::serve(verb, mib),
        Some(address) => transfer::call(verb, mib, address),
    };
    outcome.map(|()| true).map_err(|e| e.to_string())
}

/// Runs every kind of fault with every verb.
fn all(options: &Options) -> Result<bool> {
    let mut rows = Vec::new();
    let mut good = true;
    for (name, fault) in options.weather() {
        let mut cells = Vec::new();
        for verb in Verb::ALL {
            let outcome = pair(verb, options.mib, fault);
            let harmed = outcome.as_ref().map_or(0, |o| o.harmed);
            let outcome = match outcome {
                Ok(_) if harmed == 0 && !fault.is_empty() => Err("no packet met a fault".to_owned()),
                other => other,
            };
            match &outcome {
                Ok(o) => println!("{name}: {} {} MiB: {o}", verb.name(), options.mib),
                Err(why) => println!("{name}: {} {} MiB FAILED: {why}", verb.name(), options.mib),
            }
            good &= outcome.is_ok();
            cells.push(outcome);
        }
        rows.push((name, cells));
    }
    let table = report::table(options.mib, &rows);
    print!("\n{table}");
    if let Some(file) = &options.write {
        report::write(file, &table)?;
    }
    Ok(good)
}

/// Server or client, with the output.
struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    fn start(args: &[&str], fault: &str) -> Result<Process> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(&program);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).env("ADVERB_PATH", "wire");
        if fault.is_empty() {
            command.env_remove("ADVERB_FAULT");
        } else {
            command.env("ADVERB_FAULT", format!("{fault},seed=7"));
        }
        let mut child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
        let lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        Ok(Process { child, lines })
    }

    fn line(&mut self) -> Result<String> {
        self.lines.next().ok_or("a process ended early")?.map_err(|e| e.to_string())
    }

    /// Closes the input of the process and waits for the end.
    fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait().map_err(|e| e.to_string())?;
        if status.success() { Ok(()) } else { Err(status.to_string()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Harmless if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a transfer between two processes. The faults apply to both.
fn pair(verb: Verb, mib: u64, fault: &str) -> Result<Outcome> {
    let mib = mib.to_string();
    let mut server = Process::start(&["serve", verb.name(), &mib], fault)?;
    let address = server.line()?;
    let mut client = Process::start(&["call", verb.name(), &mib, &address], fault)?;
    let (one, two) = (Outcome::parse(&client.line()?)?, Outcome::parse(&server.line()?)?);
    client.end()?;
    server.end()?;
    Ok(Outcome { seconds: one.seconds, harmed: one.harmed + two.harmed })
}
