//! `adverb stat`: what the processes of the user do, once: as a table, as JSON, or for Prometheus.
pub mod ask;
mod json;
mod objects;
mod prometheus;
pub mod table;
pub mod world;

use crate::out::{out, outln};
use ask::Rounds;
pub use objects::objects;
use std::time::Duration;
use world::{History, World};

/// Shows once what the processes of this user with an open device do
///
/// Asks each process of this user in this network namespace, twice, so that rates can be shown.
/// `adverb top` shows the same continuously.
#[derive(clap::Args)]
#[command(after_help = "Exit status: 0, also when a process is stuck or gives no answer.")]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// Time between the two questions, in seconds; 0 asks once, and shows no rates
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = seconds)]
    interval: Duration,
}

/// A time in seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 =
        text.trim_end_matches('s').parse().map_err(|_| "a number of seconds is expected")?;
    if !(0.0..=3600.0).contains(&seconds) {
        return Err("0 to 3600 seconds are possible".into());
    }
    Ok(Duration::from_secs_f64(seconds))
}

pub fn main(args: &Args) -> Result<(), String> {
    let world = look(args.interval)?;
    if args.json {
        outln!("{}", json::json(&world));
    } else if args.prometheus {
        out!("{}", prometheus::text(&world));
    } else {
        print(&world);
    }
    Ok(())
}

/// Two rounds of questions, this time apart.
pub fn look(interval: Duration) -> Result<World, String> {
    let (mut rounds, mut history) = (Rounds::new()?, History::default());
    let world = history.world(&rounds.ask());
    if interval.is_zero() {
        return Ok(world);
    }
    std::thread::sleep(interval);
    Ok(history.world(&rounds.ask()))
}

pub fn print(world: &World) {
    outln!("{}", table::summary(world));
    if world.processes.is_empty() && world.silent.is_empty() {
        outln!("no process of this user has a device open in this network namespace");
        return;
    }
    for line in table::lines(world, usize::MAX, table::COLUMNS) {
        outln!("{}", line.text);
    }
}
