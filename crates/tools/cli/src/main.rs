//! The command `adverb`: starts programs on the software RDMA device, lists devices, and
//! demonstrates the device.
#![forbid(unsafe_code)]
// All output goes through `out`, which escapes control characters of the terminal.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod demo;
mod devices;
mod doctor;
mod duration;
mod env;
mod examination;
mod explain;
mod fault;
mod hunt;
mod out;
mod pages;
mod results;
mod run;
mod stat;
mod top;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Exit status of the command's own failures.
const FAILED: u8 = 1;

/// Exit status for wrong arguments, as in clap and most commands.
const USAGE: u8 = 2;

/// RDMA without hardware: a software device wholly in user space
///
/// Runs programs written for RDMA verbs on a machine without an RDMA device, without root and
/// without a kernel module.
#[derive(Parser)]
#[command(name = "adverb", version, arg_required_else_help = true)]
#[command(after_help = "First steps:\n  adverb demo                       does the device work \
                        here?\n  adverb devices                    what programs will see\n  \
                        adverb run -- ibv_devinfo -v      any verbs program")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(run::Args),
    Env(env::Args),
    Hunt(hunt::Args),
    Devices(devices::Args),
    Doctor(doctor::Args),
    Top(top::Args),
    Stat(stat::Args),
    Fault(fault::Args),
    Demo(demo::Args),
    Explain(explain::Args),
    Completions(pages::CompletionsArgs),
    Man(pages::ManArgs),
    /// The second process of the demonstration; speaks with the first by its standard input and
    /// output.
    #[command(name = demo::SECOND, hide = true)]
    DemoSecond(demo::SecondArgs),
    /// Makes the box of a hunt's run.
    #[command(name = hunt::BOX, hide = true)]
    HuntBox(hunt::BoxArgs),
    /// Changes the devices of a run, for `rdma link add` and `rdma link delete`.
    #[command(hide = true)]
    RdmaLink(run::LinkArgs),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refused(&error),
    };
    let (name, result) = match &cli.command {
        Command::Run(args) => return run::main(args),
        Command::Env(args) => ("env", env::main(args)),
        Command::Hunt(args) => return hunt::main(args),
        Command::Doctor(args) => return doctor::main(args),
        Command::Devices(args) => ("devices", devices::main(args)),
        Command::Top(args) => ("top", top::main(args)),
        Command::Stat(args) => ("stat", stat::main(args)),
        Command::Fault(args) => ("fault", fault::main(args)),
        Command::Demo(args) => ("demo", demo::main(args)),
        Command::Explain(args) => ("explain", explain::main(args)),
        Command::Completions(args) => ("completions", pages::completions(args)),
        Command::Man(args) => ("man", pages::man(args)),
        Command::DemoSecond(args) => return demo::second_main(args),
        Command::HuntBox(args) => return hunt::box_main(args),
        Command::RdmaLink(args) => return run::rdma_link(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            crate::out::errln!("adverb {name}: {text}");
            ExitCode::from(FAILED)
        }
    }
}

/// Makes all processes of this command end with the command, whichever signal ends it.
fn guard(at_end: adverb_survivor::AtEnd) {
    if let Err(e) = adverb_survivor::guard(at_end) {
        crate::out::errln!(
            "adverb: warning: programs may outlive this command if a signal ends it: {e}"
        );
    }
}

/// Prints help, or what is wrong with the arguments. `adverb run` leaves small exit statuses to its
/// program, and `adverb hunt` uses them for its findings.
fn refused(error: &clap::Error) -> ExitCode {
    let text = error.render();
    if !error.use_stderr() {
        let stdout = std::io::stdout();
        let columns = adverb_os::sys::terminal_size(std::os::fd::AsFd::as_fd(&stdout))
            .map_or(usize::MAX, |(columns, _)| columns.into());
        out::out!("{}", pages::wrapped(&text.to_string(), columns));
        return ExitCode::SUCCESS;
    }
    out::write_error(format_args!("{text}"));
    let run = std::env::args_os().nth(1).is_some_and(|name| name == "run" || name == "hunt");
    ExitCode::from(if run { run::OWN_FAILURE } else { USAGE })
}
