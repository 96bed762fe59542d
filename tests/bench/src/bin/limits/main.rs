//! The limits of the machine and its kernel without RDMA. The figures of the device are compared
//! with these limits.
//!
//! `limits [--ms DURATION] [NAME...]` measures the named limits, or all, and prints one line `name
//! value unit` for each. The two ends of a pair are separate processes, pinned to different
//! processors. The C program `c/shm.c` measures the limits `shm_*`; it is compiled when needed.
#![forbid(unsafe_code)]

mod shm;
mod udp;

use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::lean::{self, LeanPath};
use adverb_bench::pair::{self, Cpus};
use clap::Parser;
use nix::sys::epoll::{Epoll, EpollTimeout};
use udp::{Flow, Wait};

/// A limit: name, unit, and the function for a measurement of about the given time.
type Limit = (&'static str, &'static str, fn(Cpus, Duration) -> Result<f64>);

/// The limits of the network and of wake-ups. The limits of shared memory are in [`shm::limits`].
const LIMITS: &[Limit] = &[
    ("memcpy_65536", "B/s", |c, d| memcpy(c, 65536, d)),
    ("memcpy_1048576", "B/s", |c, d| memcpy(c, 1 << 20, d)),
    ("eventfd_wake", "s", |c, d| eventfd(c, false, d)),
    ("eventfd_epoll", "s", |c, d| eventfd(c, true, d)),
    // 64 bytes is about the size of an 8-byte SEND with its headers.
    ("udp_spin", "s", |c, d| udp::ping_pong(c, Wait::Spin, 64, d)),
    ("udp_spin_8", "s", |c, d| udp::ping_pong(c, Wait::Spin, 8, d)),
    ("udp_block", "s", |c, d| udp::ping_pong(c, Wait::Block, 64, d)),
    ("udp_epoll", "s", |c, d| udp::ping_pong(c, Wait::Epoll, 64, d)),
    ("udp_gso_4156", "B/s", |c, d| udp::one_way(c, 4156, Flow::Gso, d)),
    ("udp_gso_1060", "B/s", |c, d| udp::one_way(c, 1060, Flow::Gso, d)),
    ("udp_gso_window_4156", "B/s", |c, d| udp::one_way(c, 4156, Flow::GsoWindow, d)),
    ("udp_gso_window_1060", "B/s", |c, d| udp::one_way(c, 1060, Flow::GsoWindow, d)),
    ("udp_plain_4156", "B/s", |c, d| udp::one_way(c, 4156, Flow::Plain, d)),
    ("lean_roce", "B/s", |c, d| lean::stream(LeanPath::LOOPBACK, c, lean::PAYLOADS[0], d)),
    ("lean_roce_1024", "B/s", |c, d| lean::stream(LeanPath::LOOPBACK, c, lean::PAYLOADS[1], d)),
];

/// What the machine and its kernel can do without any RDMA
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    chosen: pair::Chosen,
}

fn main() -> ExitCode {
    let result = match pair::child_args() {
        Some(args) => child(&args),
        None => measure(&Options::parse().chosen),
    };
    pair::ended("limits", result)
}

fn measure(chosen: &pair::Chosen) -> Result<()> {
    let shared = shm::limits();
    let known = LIMITS.iter().map(|(name, ..)| *name).chain(shared.iter().map(|l| l.name.as_str()));
    let (time, names) = (chosen.time(), chosen.of(&known.collect::<Vec<_>>())?);
    let cpus = Cpus::allowed()?;
    // These run in separate processes: the other measurements leave this process pinned.
    for limit in shared.iter().filter(|l| names.contains(&l.name.as_str())) {
        let value = limit.measure(cpus, time).map_err(|e| format!("{}: {e}", limit.name))?;
        println!("{} {value:e} s", limit.name);
    }
    for (name, unit, run) in LIMITS.iter().filter(|(name, ..)| names.contains(name)) {
        let value = run(cpus, time).map_err(|e| format!("{name}: {e}"))?;
        println!("{name} {value:e} {unit}");
    }
    Ok(())
}

fn child(args: &[String]) -> Result<()> {
    let number = |s: &String| s.parse::<u16>().map_err(|e| format!("{s}: {e}"));
    let (cpu, args) = args.split_first().ok_or("no processor given")?;
    pair::pin(number(cpu)?.into())?;
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["eventfd"] => eventfd_echo(false),
        ["eventfd_epoll"] => eventfd_echo(true),
        ["echo", _, how] => udp::echo(number(&args[1])?, how),
        [lean::RECEIVER, ..] => lean::receiver(&args[1..]),
        ["sink", _, how] => udp::sink(number(&args[1])?, how == "credit"),
        _ => Err(format!("no such child: {args:?}")),
    }
}

/// Bytes copied per second, with a source and a destination of `size` bytes each.
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

/// An eventfd with the expected value 1, with or without an epoll to sleep on.
struct Wakes {
    fd: File,
    epoll: Option<Epoll>,
}

impl Wakes {
    fn new(fd: File, by_epoll: bool) -> Result<Self> {
        let epoll = if by_epoll { Some(pair::epoll_of(&[&fd])?) } else { None };
        Ok(Self { fd, epoll })
    }

    fn read(&mut self) -> Result<u64> {
        if let Some(epoll) = &self.epoll {
            pair::sleep(epoll, EpollTimeout::NONE)?;
        }
        let mut count = [0; 8];
        self.fd.read_exact(&mut count).map_err(|e| format!("read: {e}"))?;
        Ok(u64::from_ne_bytes(count))
    }
}

fn wake(fd: &mut File, count: u64) -> Result<()> {
    fd.write_all(&count.to_ne_bytes()).map_err(|e| format!("write: {e}"))
}

/// Half of the median round trip between two processes that sleep in `read` of an eventfd, or in
/// `epoll_wait` before the `read`.
fn eventfd(cpus: Cpus, by_epoll: bool, time: Duration) -> Result<f64> {
    let kind = if by_epoll { "eventfd_epoll" } else { "eventfd" };
    let (mut there, back, child) = pair::eventfds(cpus.there, kind)?;
    pair::pin(cpus.here)?;
    let mut back = Wakes::new(back, by_epoll)?;
    let mut trips = pair::Trips::new(time);
    while trips.more() {
        wake(&mut there, 1)?;
        back.read()?;
        trips.done();
    }
    // A ping-pong never has two events at once, so 2 is the signal to stop.
    wake(&mut there, 2)?;
    child.end()?;
    Ok(trips.half_median())
}

fn eventfd_echo(by_epoll: bool) -> Result<()> {
    let (here, mut back) = pair::inherited_eventfds()?;
    let mut here = Wakes::new(here, by_epoll)?;
    while here.read()? == 1 {
        wake(&mut back, 1)?;
    }
    Ok(())
}
