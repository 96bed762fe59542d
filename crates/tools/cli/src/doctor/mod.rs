//! `adverb doctor`: finds what on this machine keeps programs from working, with a remedy for each
//! finding.
mod finding;
mod limits;
mod network;
mod peer;
mod port;
mod processes;
mod screen;
mod versions;

use crate::out::{out, outln};
use finding::{Finding, State};
use std::process::ExitCode;

/// Checks this machine: what works, what hinders programs, and what helps
///
/// Checks versions, interfaces, the UDP port, calls between processes, and limits.
#[derive(clap::Args)]
#[command(after_help = "To test the way between two hosts: `adverb doctor --listen` on one, \
                        `adverb doctor --with HOST` on the other.\nExit status: 0 if no line \
                        fails, 1 if a line fails; warnings do not count.")]
pub struct Args {
    /// Print JSON: an array with an object for each finding
    #[arg(long)]
    json: bool,
    /// Wait for `--with` of another host, test the way between both hosts, and end
    #[arg(long, value_name = "ADDRESS[:PORT]", num_args = 0..=1, default_missing_value = "0.0.0.0")]
    listen: Option<String>,
    /// Test the way to another host, which runs `--listen`
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with = "listen")]
    with: Option<String>,
    /// A second process of the command: reads four bytes at this address of its parent
    #[arg(long, hide = true, value_name = "ADDRESS")]
    read_parent: Option<usize>,
}

pub fn main(args: &Args) -> ExitCode {
    if let Some(address) = args.read_parent {
        return processes::read_parent(address);
    }
    let all = match (&args.listen, &args.with) {
        (Some(address), _) => peer::listen(address),
        (None, Some(host)) => peer::with(host),
        (None, None) => this_machine(),
    };
    if args.json {
        match serde_json::to_string(&all) {
            Ok(text) => outln!("{text}"),
            Err(e) => crate::out::errln!("adverb doctor: {e}"),
        }
    } else {
        out!("{}", screen::text(&all));
    }
    let fails = all.iter().any(|finding| finding.state == State::Fail);
    ExitCode::from(if fails { crate::FAILED } else { 0 })
}

fn this_machine() -> Vec<Finding> {
    let mut all: Vec<Finding> = Vec::new();
    all.extend(versions::findings());
    all.extend(network::findings());
    all.extend(port::findings());
    all.extend(processes::findings());
    all.extend(limits::findings());
    all
}
