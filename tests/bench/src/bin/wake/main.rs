//! Completion events between two processes on the wire path: the cost of waking a sleeping program.
//!
//! `wake [--ms DURATION] [NAME...]` prints `name value unit`. The limits `eventfd_*` and `udp_*` of
//! the program `limits` are the same ping-pong without RDMA. Each end sleeps until the completion
//! event of an 8-byte message, acknowledges the event, arms, polls until empty and sends the
//! answer. The two ends are separate processes, pinned to different processors.
#![forbid(unsafe_code)]

mod end;

use std::process::ExitCode;
use std::time::Duration;

use adverb_bench::Result;
use adverb_bench::pair::{self, Cpus, Trips};
use clap::Parser;
use end::{PING, STOP, WakeEnd};

/// Name, and whether both ends sleep in an epoll of their own instead of the get-event call.
const WAKES: [(&str, bool); 2] = [("cq_wake", false), ("cq_wake_epoll", true)];

/// Completion events between two processes on the wire path: what a sleeping program's wake-up
/// costs
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
    pair::ended("wake", result)
}

fn measure(chosen: &pair::Chosen) -> Result<()> {
    let (time, names) = (chosen.time(), chosen.of(&WAKES.map(|(name, _)| name))?);
    let cpus = Cpus::allowed()?;
    for (name, by_epoll) in WAKES.iter().filter(|(name, _)| names.contains(name)) {
        let value = ping_pong(cpus, name, *by_epoll, time).map_err(|e| format!("{name}: {e}"))?;
        println!("{name} {value:e} s");
    }
    Ok(())
}

/// Half of the median round trip in seconds.
fn ping_pong(cpus: Cpus, name: &str, by_epoll: bool, time: Duration) -> Result<f64> {
    let mut end = WakeEnd::new(by_epoll)?;
    let mut other = pair::start(cpus.there, &[name.to_string(), end.number().to_string()])?;
    let line = other.line()?;
    end.connect(
        line.parse().map_err(|e| format!("queue pair {line:?} of the other process: {e}"))?,
    )?;
    pair::pin(cpus.here)?;
    let mut trips = Trips::new(time);
    while trips.more() {
        end.send(PING)?;
        end.receive()?;
        trips.done();
    }
    end.send(STOP)?;
    other.end()?;
    Ok(trips.half_median())
}

/// Answers every message until a short one arrives.
fn child(args: &[String]) -> Result<()> {
    let [cpu, name, peer] = args else { return Err(format!("no such child: {args:?}")) };
    let number = |s: &String| s.parse::<u32>().map_err(|e| format!("{s}: {e}"));
    let (_, by_epoll) =
        WAKES.iter().find(|(n, _)| n == name).ok_or_else(|| format!("no {name}"))?;
    let mut end = WakeEnd::new(*by_epoll)?;
    end.connect(number(peer)?)?;
    pair::pin(number(cpu)? as usize)?;
    println!("{}", end.number());
    while end.receive()? != STOP {
        end.send(PING)?;
    }
    Ok(())
}
