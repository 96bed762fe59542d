//! How the device scales: many connected RC queue pairs between two processes, and processes that
//! are fully meshed.
//!
//! `scale [--short] [--qps N] [--processes N] [pair] [mesh]` takes ten thousand queue pairs and 64
//! processes, `--short` 500 and
//! 12. It prints `name value unit`:
//!
//! - `pair_*` ([`pairs`]): memory of a queue pair and of a pair of processes, and how the latency
//!   of SENDs and WRITEs of eight bytes grows with the number of queue pairs they take turns on;
//! - `mesh_*` ([`mesh`]): memory and descriptors of a process, and how long it takes.
//!
//! Every message is verified where it arrives, every written word at the end; a loss ends the
//! program with status 1.
#![forbid(unsafe_code)]

mod mesh;
mod pairs;

use std::process::ExitCode;
use std::time::Instant;

use adverb_bench::member::Member;
use adverb_bench::procfs::Memory;
use adverb_bench::{Result, member, pair};
use clap::{Parser, ValueEnum};

/// How the device scales: many connected queue pairs, and processes that are fully meshed
#[derive(Parser)]
struct Options {
    /// 500 queue pairs and 12 processes instead of ten thousand and 64
    #[arg(long)]
    short: bool,
    /// Queue pairs between two processes, two at least
    #[arg(long)]
    qps: Option<usize>,
    /// Processes of the mesh, two at least
    #[arg(long)]
    processes: Option<usize>,
    /// Both parts if none is named
    #[arg(value_enum)]
    parts: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Pair,
    Mesh,
}

fn main() -> ExitCode {
    let result = match pair::child_args() {
        Some(args) => member::live(&args),
        None => measure(&Options::parse()),
    };
    pair::ended("scale", result)
}

fn measure(options: &Options) -> Result<()> {
    let wanted = |part| options.parts.is_empty() || options.parts.contains(&part);
    let size =
        |given: Option<usize>, full, short| given.unwrap_or(if options.short { short } else { full }).max(2);
    if wanted(Part::Pair) {
        pairs::measure(size(options.qps, 10_000, 500), options.short).map_err(|e| format!("pair: {e}"))?;
    }
    if wanted(Part::Mesh) {
        mesh::measure(size(options.processes, 64, 12)).map_err(|e| format!("mesh: {e}"))?;
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
