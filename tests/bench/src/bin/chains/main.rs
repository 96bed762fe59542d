//! The gain of deferred posts: chains of small requests, posted one by one and as one hand-over
//! (DEF-2, DEF-8).
//!
//! `chains [--ms DURATION]` measures chains of 1, 8, 32 and 128 eight-byte WRITEs on the wire path
//! to another process, which sleeps meanwhile. A chain is timed from its first post until the
//! completion of its last request, the only signaled request. For every length and way the program
//! prints five lines `chain_LENGTH_WAY_WHAT value unit`:
//!
//! - `ns`: nanoseconds per request until the completion; `post_ns`: until the posting calls have
//!   returned;
//! - `handovers`, `calls`, `packets`: hand-overs, send system calls and packets of a chain, from
//!   the device's counters.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use adverb_bench::Result;
use adverb_bench::pair::{self, Cpus};
use adverb_bench::series::Series;
use adverb_bench::world::{World, failed, post, receive, request};
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{SendFlags, SendOp, Sge, WcStatus};
use adverb_device::{CompChannel, Cq, Qp};
use clap::Parser;

const LENGTHS: [u32; 4] = [1, 8, 32, 128];
/// Name, and whether the whole chain is handed over at once.
const WAYS: [(&str, bool); 2] = [("singly", false), ("deferred", true)];
const BYTES: usize = 8;
const MEMORY: usize = 4096;
/// A silence of this length is a failure.
const HANG_LIMIT: Duration = Duration::from_secs(5);
/// Longest time for which the other process waits.
const WATCH: Duration = Duration::from_secs(120);

/// Chains of small requests, posted one by one and as one hand-over
#[derive(Parser)]
struct Options {
    /// Milliseconds for each measurement
    #[arg(long, default_value_t = 700)]
    ms: u64,
}

fn main() -> ExitCode {
    let result = match pair::child_args() {
        Some(args) => target(&args),
        None => measure(Duration::from_millis(Options::parse().ms)),
    };
    pair::ended("chains", result)
}

fn measure(time: Duration) -> Result<()> {
    let cpus = Cpus::allowed()?;
    let source = Source::new()?;
    let mut other = pair::start(cpus.there, &[source.qp.number().to_string()])?;
    let (peer, remote) = target_of(&other.line()?)?;
    source.world.connect(&source.qp, peer)?;
    pair::pin(cpus.here)?;
    for length in LENGTHS {
        for (way, whole) in WAYS {
            for (what, value, unit) in source.chains(length, whole, remote, time)? {
                println!("chain_{length}_{way}_{what} {value:e} {unit}");
            }
        }
    }
    source.stop()?;
    other.end()
}

/// The posting end.
struct Source {
    world: World,
    cq: Arc<Cq>,
    qp: Arc<Qp>,
}

/// Name, value and unit.
type Figure = (&'static str, f64, &'static str);

impl Source {
    fn new() -> Result<Source> {
        let world = World::open(MEMORY)?;
        let depth = LENGTHS.iter().max().copied().unwrap_or(1);
        let cq = Cq::new(&world.context, depth, None, 0).map_err(failed("CQ"))?;
        let qp = world.qp(&cq, &cq, depth)?;
        Ok(Source { world, cq, qp })
    }

    /// Runs chains of a length and way, as many as fit into the time.
    fn chains(
        &self,
        length: u32,
        whole: bool,
        remote: Remote,
        time: Duration,
    ) -> Result<[Figure; 5]> {
        let before = self.world.context.node().stats();
        let (mut to_completion, mut to_return) = (Vec::new(), Vec::new());
        let end = Instant::now() + time;
        let mut start = Instant::now();
        while start < end {
            self.post(length, whole, remote)?;
            to_return.push(start.elapsed());
            self.wait()?;
            to_completion.push(start.elapsed());
            start = Instant::now();
        }
        let after = self.world.context.node().stats();
        let count = to_return.len() as f64;
        let a_request = |times: Vec<Duration>| {
            let median = Series::of(times.iter().map(Duration::as_secs_f64)).map(|s| s.median);
            median.unwrap_or(f64::NAN) * 1e9 / f64::from(length)
        };
        let a_chain = |after: u64, before: u64| (after - before) as f64 / count;
        Ok([
            ("ns", a_request(to_completion), "ns"),
            ("post_ns", a_request(to_return), "ns"),
            ("handovers", a_chain(after.commits, before.commits), "1"),
            ("calls", a_chain(after.send_calls, before.send_calls), "1"),
            ("packets", a_chain(after.packets_sent, before.packets_sent), "1"),
        ])
    }

    fn post(&self, length: u32, whole: bool, remote: Remote) -> Result<()> {
        let sges: [Sge; 1] = [self.world.buffer.sge(0, BYTES)];
        let wr = |n: u32| {
            let flags = if n + 1 == length { SendFlags::SIGNALED } else { SendFlags::empty() };
            request(u64::from(n), flags, SendOp::Write(remote), &sges)
        };
        if !whole {
            return (0..length).try_for_each(|n| post(&self.qp, &wr(n)));
        }
        let mut chain = self.qp.send_chain().map_err(failed("chain"))?;
        (0..length).try_for_each(|n| chain.stage(&wr(n))).map_err(failed("chain"))?;
        chain.commit();
        Ok(())
    }

    /// Polls for the chain's completion.
    fn wait(&self) -> Result<()> {
        let end = Instant::now() + HANG_LIMIT;
        let mut status = None;
        while status.is_none() {
            self.cq.poll(1, |c| status = Some(c.status)).map_err(|e| format!("poll: {e}"))?;
            if Instant::now() > end {
                return Err("a chain does not complete".to_string());
            }
        }
        match status {
            Some(WcStatus::Success) => Ok(()),
            other => Err(format!("a chain ends with {other:?}")),
        }
    }

    /// Makes the other process end.
    fn stop(&self) -> Result<()> {
        post(&self.qp, &request(0, SendFlags::SIGNALED, SendOp::Send, &[]))?;
        self.wait()
    }
}

/// The other process: prints its queue pair and memory, and sleeps until a message arrives.
fn target(args: &[String]) -> Result<()> {
    let [cpu, peer] = args else { return Err(format!("no such child: {args:?}")) };
    let number = |s: &String| s.parse::<u32>().map_err(|e| format!("{s}: {e}"));
    let world = World::open(MEMORY)?;
    let channel = CompChannel::new(&world.context).map_err(failed("channel"))?;
    let cq = Cq::new(&world.context, 1, Some(&channel), 0).map_err(failed("CQ"))?;
    let qp = world.qp(&cq, &cq, 1)?;
    cq.req_notify(ArmKind::Next).map_err(failed("arm"))?;
    world.connect(&qp, number(peer)?)?;
    receive(&qp, 0, &[])?;
    pair::pin(number(cpu)? as usize)?;
    println!("{} {} {}", qp.number(), world.buffer.addr(), world.buffer.key());
    let cutoff = Some(Instant::now() + WATCH);
    channel.next_event(cutoff).map_err(|e| format!("get event: {e}"))?.ack_events(1);
    Ok(())
}

/// Queue pair and memory of the other process, from a line of output.
fn target_of(line: &str) -> Result<(u32, Remote)> {
    let bad = || format!("the other process said {line:?}");
    let mut numbers = line.split(' ').map(|w| w.parse::<u64>().map_err(|_| bad()));
    let mut next = || numbers.next().unwrap_or_else(|| Err(bad()));
    let (qpn, va, rkey) = (next()?, next()?, next()?);
    let narrow = |n: u64| u32::try_from(n).map_err(|_| bad());
    Ok((narrow(qpn)?, Remote { va, rkey: narrow(rkey)? }))
}
