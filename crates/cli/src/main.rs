//! The command `adverb`: starts programs on the software RDMA device, shows its devices, demonstrates it.
#![forbid(unsafe_code)]

mod demo;
mod devices;
mod logger;
mod run;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Of our own failures: the value that `env`, `nice` and the like use.
const FAILED: u8 = 1;

/// RDMA without hardware: a software device wholly in user space
///
/// Runs programs written for RDMA verbs on a machine that has no RDMA device, without root and without a kernel module.
#[derive(Parser)]
#[command(name = "adverb", version, arg_required_else_help = true)]
#[command(after_help = "First steps:\n  adverb demo                       does it work here?\n  \
    adverb devices                    what programs will see\n  \
    adverb run -- ibv_devinfo -v      any verbs program")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Devices(devices::Args),
    Demo(demo::Args),
    /// The second process of the demonstration; speaks with the first by its standard input and output.
    #[command(name = demo::SECOND, hide = true)]
    DemoSecond(demo::SecondArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let (name, result) = match &cli.command {
        Command::Run(args) => return run::main(args),
        Command::Devices(args) => ("devices", devices::main(args)),
        Command::Demo(args) => ("demo", demo::main(args)),
        Command::DemoSecond(args) => return demo::second_main(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            eprintln!("adverb {name}: {text}");
            ExitCode::from(FAILED)
        }
    }
}
