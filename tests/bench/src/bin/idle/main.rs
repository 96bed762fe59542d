//! The cost of connected queue pairs without traffic.
//!
//! `idle [--qps N] [--seconds S]` connects N RC queue pairs (default: a thousand) between two
//! processes and sends messages over each in both directions. Then both processes sleep on armed
//! CQs for S seconds (default: sixty). The program prints the sums over both processes:
//!
//! - `idle_cpu`: seconds of `utime` and `stime` in `/proc/PID/stat`, which counts in hundredths;
//! - `idle_clock`: the same by the processes' own CPU-time clocks;
//! - `idle_sleeps`: how often a thread went to sleep, which equals the number of wake-ups.
//!
//! After this every queue pair has to carry messages again. After a loss the exit status is 1.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use adverb_bench::Result;
use adverb_bench::member::{self, Member, ask_all};
use adverb_bench::pair::{self, Cpus};
use adverb_bench::procfs::Cpu;
use clap::Parser;

/// Messages in each direction over every queue pair, before and after.
const MESSAGES: usize = 4;
const BYTES: usize = 64;
/// Limit of outstanding requests of a process.
const WINDOW: usize = 64;
/// Pause after the last message, for acknowledgements and timers.
const REST: Duration = Duration::from_secs(2);

/// What connected queue pairs cost that have nothing to do
#[derive(Parser)]
struct Options {
    /// Queue pairs between two processes
    #[arg(long, default_value_t = 1000)]
    qps: usize,
    /// How long to look on
    #[arg(long, default_value_t = 60)]
    seconds: u64,
}

fn main() -> ExitCode {
    let result = match pair::child_args() {
        Some(args) => member::live(&args),
        None => {
            let options = Options::parse();
            measure(options.qps, Duration::from_secs(options.seconds))
        }
    };
    pair::ended("idle", result)
}

fn measure(qps: usize, time: Duration) -> Result<()> {
    let cpus = Cpus::allowed()?;
    let mut ends = [Member::start(Some(cpus.here))?, Member::start(Some(cpus.there))?];
    ask_all(&mut ends, &format!("open {qps} {BYTES}"))?;
    ask_all(&mut ends, "cq")?;
    let made = ask_all(&mut ends, &format!("make {qps}"))?;
    for (end, peers) in ends.iter_mut().zip(made.iter().rev()) {
        end.order(&format!("connect {peers}"))?;
    }
    ends.iter_mut().try_for_each(|end| end.answer().map(drop))?;
    exchange(&mut ends, qps)?;

    let whole = REST + time + REST;
    ends.iter_mut().try_for_each(|end| end.order(&format!("sleep {}", whole.as_millis())))?;
    std::thread::sleep(REST);
    let look = |ends: &[Member; 2]| -> Result<[Cpu; 2]> {
        Ok([Cpu::of(ends[0].pid())?, Cpu::of(ends[1].pid())?])
    };
    let before = look(&ends)?;
    std::thread::sleep(time);
    let after = look(&ends)?;
    let events = ends.iter_mut().map(Member::answer).collect::<Result<Vec<_>>>()?;
    if events.iter().any(|n| n != "0") {
        return Err(format!("there was nothing to tell of, but events came: {events:?}"));
    }
    exchange(&mut ends, qps)?;

    let both = |of: fn(Cpu, Cpu) -> f64| of(after[0], before[0]) + of(after[1], before[1]);
    println!("idle_qps {qps} 1");
    println!("idle_time {} s", time.as_secs());
    println!("idle_cpu {:e} s", both(Cpu::seconds_since));
    println!("idle_clock {:e} s", both(|a, b| (a.time - b.time).as_secs_f64()));
    println!("idle_sleeps {} 1", both(|a, b| (a.sleeps - b.sleeps) as f64));
    Ok(())
}

/// Sends messages over all queue pairs in both directions, each verified on arrival.
fn exchange(ends: &mut [Member; 2], qps: usize) -> Result<()> {
    let received = ask_all(ends, &format!("exchange {MESSAGES} {WINDOW}"))?;
    let all = (MESSAGES * qps).to_string();
    match received.iter().all(|n| *n == all) {
        true => Ok(()),
        false => Err(format!("{received:?} messages came, not {all} each way")),
    }
}
