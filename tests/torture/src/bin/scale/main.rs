//! Scaling of the device: many connected RC queue pairs between two processes, and fully meshed
//! processes.
//!
//! `scale [--short] [--qps N] [--processes N] [pair] [mesh]` takes ten thousand queue pairs and 64
//! processes; with `--short` 500 and 12. The program prints `name value unit`:
//!
//! - `pair_*` ([`pairs`]): memory of a queue pair and of a pair of processes, and the latency of
//!   SENDs and WRITEs of eight bytes by the number of queue pairs that take turns;
//! - `mesh_*` ([`mesh`]): memory and descriptors of a process, and the duration.
//!
//! Every message is verified on arrival, and every written word at the end. After a loss the exit
//! status is 1.
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
    parts: Vec<ScalePart>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScalePart {
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
    let size = |given: Option<usize>, full, short| {
        given.unwrap_or(if options.short { short } else { full }).max(2)
    };
    if wanted(ScalePart::Pair) {
        pairs::measure(size(options.qps, 10_000, 500), options.short)
            .map_err(|e| format!("pair: {e}"))?;
    }
    if wanted(ScalePart::Mesh) {
        mesh::measure(size(options.processes, 64, 12)).map_err(|e| format!("mesh: {e}"))?;
    }
    Ok(())
}

/// Present memory of each process.
fn memory(members: &[Member]) -> Result<Vec<Memory>> {
    members.iter().map(|m| Memory::of(m.pid())).collect()
}

/// Runs `what` and returns the duration in seconds.
fn timed<T>(what: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let found = what()?;
    Ok((found, start.elapsed().as_secs_f64()))
}
