//! How the device scales: many connected RC queue pairs between two processes, and processes that are fully meshed.
//!
//! `scale [--short] [--qps N] [--processes N] [pair] [mesh]` takes ten thousand queue pairs and 64 processes, `--short` 500 and
//! 12. It prints `name value unit`:
//!
//! - `pair_*` ([`pairs`]): memory of a queue pair and of a pair of processes, and how the latency of SENDs and WRITEs of eight
//!   bytes grows with the number of queue pairs they take turns on;
//! - `mesh_*` ([`mesh`]): memory and descriptors of a process, and how long it takes.
//!
//! Every message is verified where it arrives, every written word at the end; a loss ends the program with status 1.
#![forbid(unsafe_code)]

mod mesh;
mod pairs;

use std::process::ExitCode;
use std::time::Instant;

use adverb_bench::member::Member;
use adverb_bench::pair::CHILD;
use adverb_bench::procfs::Memory;
use adverb_bench::{Result, member};

struct Options {
    qps: usize,
    processes: usize,
    short: bool,
    parts: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some(CHILD) => member::live(&args[1..]),
        _ => options(&args).and_then(|o| measure(&o)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("scale: {why}");
            ExitCode::FAILURE
        }
    }
}

fn options(args: &[String]) -> Result<Options> {
    let short = args.iter().any(|a| a == "--short");
    let (qps, processes) = if short { (500, 12) } else { (10_000, 64) };
    let mut found = Options { qps, processes, short, parts: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut number = || {
            let value = args.next().ok_or_else(|| format!("{arg} needs a number"))?;
            value.parse::<usize>().map_err(|e| format!("{arg} {value}: {e}"))
        };
        match arg.as_str() {
            "--short" => {}
            "--qps" => found.qps = number()?.max(2),
            "--processes" => found.processes = number()?.max(2),
            "pair" | "mesh" => found.parts.push(arg.clone()),
            _ => {
                return Err(format!(
                    "{arg} is unknown; usage: scale [--short] [--qps N] [--processes N] [pair] [mesh]"
                ));
            }
        }
    }
    Ok(found)
}

fn measure(options: &Options) -> Result<()> {
    let wanted = |part: &str| options.parts.is_empty() || options.parts.iter().any(|p| p == part);
    if wanted("pair") {
        pairs::measure(options.qps, options.short).map_err(|e| format!("pair: {e}"))?;
    }
    if wanted("mesh") {
        mesh::measure(options.processes).map_err(|e| format!("mesh: {e}"))?;
    }
    Ok(())
}

/// Memory of each process now.
fn memory(members: &[Member]) -> Result<Vec<Memory>> {
    members.iter().map(|m| Memory::of(m.pid())).collect()
}

/// Seconds that something takes.
fn timed<T>(what: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let found = what()?;
    Ok((found, start.elapsed().as_secs_f64()))
}
