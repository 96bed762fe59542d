//! What the machine and its kernel can do without any RDMA: the figures that the device's are set beside.
//!
//! `limits [--ms DURATION] [NAME...]` measures the named limits, or all, and prints one line for each:
//! `name value unit`. Both ends of a pair are processes of their own, pinned to different processors.
#![forbid(unsafe_code)]

mod pair;
mod udp;

use std::hint::black_box;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use pair::Cpus;
use udp::Flow;

/// Errors are for a person to read.
type Result<T> = std::result::Result<T, String>;

/// A limit: its name and how it is measured in about the given time. Bytes a second, or seconds.
type Limit = (&'static str, &'static str, fn(Cpus, Duration) -> Result<f64>);

const LIMITS: &[Limit] = &[
    ("memcpy_65536", "B/s", |c, d| memcpy(c, 65536, d)),
    ("memcpy_1048576", "B/s", |c, d| memcpy(c, 1 << 20, d)),
    ("eventfd_wake", "s", eventfd),
    ("udp_spin", "s", |c, d| udp::ping_pong(c, true, d)),
    ("udp_block", "s", |c, d| udp::ping_pong(c, false, d)),
    ("udp_gso_4156", "B/s", |c, d| udp::one_way(c, 4156, Flow::Gso, d)),
    ("udp_gso_1060", "B/s", |c, d| udp::one_way(c, 1060, Flow::Gso, d)),
    ("udp_gso_window_4156", "B/s", |c, d| udp::one_way(c, 4156, Flow::GsoWindow, d)),
    ("udp_gso_window_1060", "B/s", |c, d| udp::one_way(c, 1060, Flow::GsoWindow, d)),
    ("udp_plain_4156", "B/s", |c, d| udp::one_way(c, 4156, Flow::Plain, d)),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.first().map(String::as_str) {
        Some(pair::CHILD) => child(&args[1..]),
        _ => measure(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("limits: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &[String]) -> Result<()> {
    let mut time = Duration::from_millis(700);
    let mut names = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--ms" {
            let value = args.next().ok_or("--ms needs a number")?;
            time = Duration::from_millis(value.parse().map_err(|e| format!("--ms {value}: {e}"))?);
        } else if LIMITS.iter().any(|(name, ..)| name == arg) {
            names.push(arg.as_str());
        } else {
            let known: Vec<&str> = LIMITS.iter().map(|(name, ..)| *name).collect();
            return Err(format!("no limit {arg:?}; there are {}", known.join(", ")));
        }
    }
    let cpus = Cpus::allowed()?;
    for (name, unit, run) in LIMITS {
        if names.is_empty() || names.contains(name) {
            let value = run(cpus, time).map_err(|e| format!("{name}: {e}"))?;
            println!("{name} {value:e} {unit}");
        }
    }
    Ok(())
}

fn child(args: &[String]) -> Result<()> {
    let number = |s: &String| s.parse::<u16>().map_err(|e| format!("{s}: {e}"));
    let (cpu, args) = args.split_first().ok_or("no processor given")?;
    pair::pin(number(cpu)?.into())?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["eventfd"] => eventfd_echo(),
        ["echo", _, how] => udp::echo(number(&args[1])?, how == "spin"),
        ["sink", _, how] => udp::sink(number(&args[1])?, how == "credit"),
        _ => Err(format!("no such child: {args:?}")),
    }
}

/// Bytes copied a second, source and destination of `size` bytes each.
fn memcpy(cpus: Cpus, size: usize, time: Duration) -> Result<f64> {
    pair::pin(cpus.here)?;
    let (from, mut to) = (vec![1u8; size], vec![2u8; size]);
    let batch = (4 << 20) / size;
    let (start, mut copied) = (Instant::now(), 0usize);
    while start.elapsed() < time {
        for _ in 0..batch {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        }
        copied += batch * size;
    }
    Ok(copied as f64 / start.elapsed().as_secs_f64())
}

/// Half of the median round trip between two processes that sleep in `read` of an eventfd.
fn eventfd(cpus: Cpus, time: Duration) -> Result<f64> {
    let (mut there, mut back, child) = pair::eventfds(cpus.there)?;
    pair::pin(cpus.here)?;
    let mut trips = pair::Trips::new(time);
    let mut count = [0; 8];
    while trips.more() {
        there.write_all(&1u64.to_ne_bytes()).map_err(|e| format!("write: {e}"))?;
        back.read_exact(&mut count).map_err(|e| format!("read: {e}"))?;
        trips.done();
    }
    // Two at once cannot come from a ping-pong: the sign to stop.
    there.write_all(&2u64.to_ne_bytes()).map_err(|e| format!("write: {e}"))?;
    child.end()?;
    Ok(trips.half_median())
}

fn eventfd_echo() -> Result<()> {
    let (mut here, mut back) = pair::inherited_eventfds()?;
    let mut count = [0; 8];
    loop {
        here.read_exact(&mut count).map_err(|e| format!("read: {e}"))?;
        if u64::from_ne_bytes(count) != 1 {
            return Ok(());
        }
        back.write_all(&count).map_err(|e| format!("write: {e}"))?;
    }
}
