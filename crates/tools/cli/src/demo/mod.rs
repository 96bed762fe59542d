//! `adverb demo`: two processes perform every operation and check every byte and completion. Then
//! they measure a few latencies and rates.
mod checks;
pub mod control;
pub mod end;
mod measure;
pub mod world;

use crate::devices::NO_DEVICE;
use crate::out::{out, outln};
use adverb_device::Device;
use adverb_device::interfaces::ip_of;
use adverb_survivor::AtEnd;
use adverb_threads::Task;
use control::Control;
use measure::{Latency, Rate};
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use world::{Role, World};

/// The hidden subcommand of the second process.
pub const SECOND: &str = "demo-second";

/// After this time something hangs, however slow the machine is.
const LIMIT: Duration = Duration::from_secs(120);

/// Tests the device on this machine: two processes, every operation, every byte checked
///
/// Needs no RDMA package. Ends with status 0 only if every check passed, and then prints a small
/// table of latencies and rates.
#[derive(clap::Args)]
pub struct Args {
    /// The device, from the list of `adverb devices` [default: the first working device]
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Omit the measurements
    #[arg(long)]
    no_measure: bool,
    /// The emulator that runs this command, where the kernel cannot start it by itself
    #[arg(long, value_name = "PROGRAM", hide = true)]
    runner: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct SecondArgs {
    #[arg(long)]
    device: String,
    #[arg(long)]
    no_measure: bool,
}

/// The results of both processes.
struct DemoResults {
    latencies: Vec<Latency>,
    rates: Vec<Rate>,
    /// The part of the measurement in which this thread was runnable and had no processor.
    waited: Option<f64>,
}

/// A part of this size makes the figures doubtful.
const MOST_WAITED: f64 = 0.1;

/// The time that this thread has waited for a processor so far. `None`: the kernel does not say.
fn wait_for_processor() -> Option<Duration> {
    Task::own(nix::unistd::gettid().as_raw()).times().map(|[_, waited]| waited)
}

pub fn main(args: &Args) -> Result<(), String> {
    // Provoked failures are expected. The check itself reports unexpected failures.
    adverb_device::logging::start("adverb demo", log::LevelFilter::Off);
    adverb_survivor::see_children();
    crate::guard(AtEnd::default());
    let start = Instant::now();
    give_up_after(LIMIT, "adverb demo");
    let device = choose(args.device.as_deref())?;
    let mut second = start_second(&device, args.no_measure, args.runner.as_deref())?;
    let index = world::gid_index(&device);
    let address = device.gids().get(index).map_or_else(String::new, |gid| ip_of(gid).to_string());
    outln!(
        "processes {} and {} on device {} ({address}, path MTU {})",
        std::process::id(),
        second.id(),
        device.name(),
        device.path_mtu().bytes()
    );
    let (Some(from), Some(to)) = (second.stdout.take(), second.stdin.take()) else {
        return Err("the second process has no pipes".into());
    };
    let control = Control::new(BufReader::new(from), to);
    let outcome = World::new(Role::First, &device, index, control).and_then(|mut world| {
        let outcome = both(&mut world, args.no_measure);
        settle(world, outcome)
    });
    // The pipes are already closed.
    let status = second.wait().map_err(|e| format!("waiting for the second process: {e}"))?;
    let outcome = outcome?;
    if !status.success() {
        return Err(format!("the second process ended with {status}"));
    }
    print_figures(&outcome);
    outln!("{} checks passed in {:.1} s", checks::ALL.len(), start.elapsed().as_secs_f64());
    Ok(())
}

pub fn second_main(args: &SecondArgs) -> ExitCode {
    adverb_device::logging::start("adverb demo (second process)", log::LevelFilter::Off);
    give_up_after(LIMIT, "adverb demo, second process");
    let mut control = Control::new(BufReader::new(std::io::stdin()), std::io::stdout());
    let Ok(device) = find(&args.device).inspect_err(|why| control.fail(why)) else {
        return ExitCode::FAILURE;
    };
    let index = world::gid_index(&device);
    let outcome = World::new(Role::Second, &device, index, control).and_then(|mut world| {
        both(&mut world, args.no_measure).inspect_err(|why| world.control.fail(why))
    });
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The part of both processes, which run side by side.
fn both(world: &mut World, no_measure: bool) -> Result<DemoResults, String> {
    for (name, check) in checks::ALL {
        if world.is_first() {
            out!("  {name:<26} ");
            let _ = std::io::stdout().flush();
        }
        match check(world).and_then(|what| world.sync().map(|()| what)) {
            Ok(what) if world.is_first() => outln!("ok   {what}"),
            Ok(_) => {}
            Err(why) => {
                if world.is_first() {
                    outln!("FAILED");
                }
                world.log_counters();
                return Err(format!("{name}: {why}"));
            }
        }
    }
    if no_measure {
        return Ok(DemoResults { latencies: Vec::new(), rates: Vec::new(), waited: None });
    }
    let failed = |what: &str, why: String, world: &World| {
        world.log_counters();
        format!("measuring {what}: {why}")
    };
    let (start, before) = (Instant::now(), wait_for_processor());
    let latencies = measure::latencies(world).map_err(|why| failed("latencies", why, world))?;
    let rates = measure::rates(world).map_err(|why| failed("rates", why, world))?;
    let waited = before.zip(wait_for_processor()).map(|(before, after)| {
        after.saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64()
    });
    Ok(DemoResults { latencies, rates, waited })
}

/// After a failure, both sides may have something to report.
fn settle(mut world: World, outcome: Result<DemoResults, String>) -> Result<DemoResults, String> {
    outcome.map_err(|why| {
        world.control.fail(&why);
        match world.control.other_failure() {
            // The other side repeats this side's message after receiving the message.
            Some(other) if !other.contains(&why) && !why.contains("the other process:") => {
                format!("{why}; {other}")
            }
            _ => why,
        }
    })
}

fn start_second(device: &Device, no_measure: bool, runner: Option<&Path>) -> Result<Child, String> {
    let exe = crate::run::own_path()?;
    let mut command = Command::new(runner.unwrap_or(&exe));
    if runner.is_some() {
        command.arg(&exe);
    }
    command.arg(SECOND).args(["--device", device.name()]);
    if no_measure {
        command.arg("--no-measure");
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    adverb_survivor::prepare(&mut command);
    command.spawn().map_err(|e| {
        let advice = world::advice(e.raw_os_error().unwrap_or(0));
        format!("the second process cannot be started: {e}{advice}")
    })
}

fn list() -> Result<Vec<Arc<Device>>, String> {
    let devices = adverb_device::device::list()
        .map_err(|e| format!("the network interfaces cannot be listed: {e}"))?;
    if devices.is_empty() { Err(NO_DEVICE.into()) } else { Ok(devices) }
}

fn find(name: &str) -> Result<Arc<Device>, String> {
    if let Some(device) = adverb_device::device::named(name).map_err(|e| e.to_string())? {
        return Ok(device);
    }
    let devices = list()?;
    let names: Vec<&str> = devices.iter().map(|d| d.name()).collect();
    Err(format!("there is no device {name}; there are: {}", names.join(", ")))
}

/// The named device, or the first device with a port that can be opened. The loopback device comes
/// last.
fn choose(name: Option<&str>) -> Result<Arc<Device>, String> {
    if let Some(name) = name {
        let device = find(name)?;
        return world::try_device(&device).map(|()| device);
    }
    let mut reasons = Vec::new();
    let loopback = adverb_device::device::loopback().ok().flatten();
    for device in list()?.into_iter().chain(loopback) {
        match world::try_device(&device) {
            Ok(()) => {
                reasons.iter().for_each(|why: &String| outln!("passed over: {why}"));
                return Ok(device);
            }
            Err(why) => reasons.push(format!("{}: {why}", device.name())),
        }
    }
    Err(format!("no device works:\n  {}", reasons.join("\n  ")))
}

/// Ends the process if still running after `limit`.
fn give_up_after(limit: Duration, name: &'static str) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        crate::out::errln!("{name}: not finished after {} s, giving up", limit.as_secs());
        std::process::exit(1);
    });
}

fn print_figures(outcome: &DemoResults) {
    if outcome.latencies.is_empty() {
        return;
    }
    outln!("\n  {:<34} {:>10} {:>10}", "latency (half a round trip)", "median", "99 %");
    for l in &outcome.latencies {
        let us = |d: Duration| format!("{:.1} µs", d.as_secs_f64() * 1e6);
        outln!("  {:<34} {:>10} {:>10}", l.name, us(l.median), us(l.high));
    }
    outln!("\n  {:<34} {:>10} {:>10}", "rate", "GB/s", "million/s");
    for r in &outcome.rates {
        let size = match r.size {
            s if s.is_multiple_of(1 << 20) => format!("{} MiB", s >> 20),
            s if s.is_multiple_of(1 << 10) => format!("{} KiB", s >> 10),
            s => format!("{s} B"),
        };
        let name = format!("{} {size}", r.name);
        let messages = r.messages as f64 / r.time.as_secs_f64();
        let bytes = messages * r.size as f64;
        outln!("  {name:<34} {:>10.3} {:>10.4}", bytes / 1e9, messages / 1e6);
    }
    if let Some(waited) = outcome.waited.filter(|waited| *waited > MOST_WAITED) {
        outln!(
            "\n  During {:.0} % of the measurement, this process waited for a processor. Other \
             programs use\n  the machine, or it has too few processors. The figures say more on an \
             idle machine.",
            waited * 100.0
        );
    }
    outln!("\n  A table with limits of the machine beside it: `make bench`.\n");
}
