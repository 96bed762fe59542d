//! `adverb run`: any program, with the drop-in libraries in place.
mod dropins;
mod environment;
mod faults;
mod runtime;
mod sysroot;

use adverb_device::faults::Spec;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// As a shell says it: found but not to be executed, and not found.
const CANNOT_EXECUTE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// As `env` says that it failed itself.
const OWN_FAILURE: u8 = 125;

/// Runs a program on the software RDMA device
///
/// The program replaces this process: its exit status, signals and terminal are its own. What it starts inherits the
/// device. Nothing needs to be cleaned up afterwards.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  adverb run -- ibv_devinfo -v\n  adverb run -- ib_send_lat -d adverb_lo\n\n\
    Exit status: that of PROGRAM; 125 if adverb fails, 126 if PROGRAM cannot be executed, 127 if it is not found."
)]
pub struct Args {
    /// What the device reports on standard error: off, error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    log: Option<log::LevelFilter>,
    /// Do without the preloaded library that shows programs /dev/infiniband and /sys/class/infiniband
    #[arg(long)]
    no_preload: bool,
    /// Faults to meet, with commas between: drop=1%, dup=1%, reorder=5%, corrupt=0.1%, delay=2ms±1ms (or +-), first=200,
    /// drop-psn=7@#2, rnr=50ms, kill-qp=2@after=100, fail=create_cq@3, seed=7
    #[arg(long, value_name = "SPEC")]
    fault: Option<Spec>,
    /// Record the packets that the program sends and receives, for Wireshark (pcapng)
    ///
    /// Each further process that the program starts, and every one while FILE is being written by another run, puts its
    /// process number before the extension. The file of an earlier capture is replaced.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    /// The program, looked for in PATH, and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

fn level(text: &str) -> Result<log::LevelFilter, String> {
    text.parse().map_err(|_| "off, error, warn, info, debug and trace are possible".into())
}

pub fn main(args: &Args) -> ExitCode {
    let (program, arguments) = args.program.split_first().expect("clap requires one");
    let variables = match variables(args) {
        Ok(variables) => variables,
        Err(text) => {
            eprintln!("adverb run: {text}");
            return ExitCode::from(OWN_FAILURE);
        }
    };
    if let Some(path) = find(program, &std::env::var_os("PATH").unwrap_or_default())
        && is_privileged(&path)
    {
        eprintln!(
            "adverb run: warning: {} is set-user-ID or has privileges of its own: the loader ignores LD_LIBRARY_PATH \
             for it, and it will not see the device",
            path.display()
        );
    }
    let error = Command::new(program).args(arguments).envs(variables).exec();
    let (text, status) = explain(program, &error);
    eprintln!("adverb run: {text}");
    ExitCode::from(status)
}

fn variables(args: &Args) -> Result<Vec<(&'static str, OsString)>, String> {
    let exe = std::env::current_exe().map_err(|e| format!("the path of this command cannot be read: {e}"))?;
    let libraries = dropins::find(&exe, !args.no_preload)?;
    let devices =
        adverb_device::device::list().map_err(|e| format!("the network interfaces cannot be listed: {e}"))?;
    if devices.is_empty() {
        eprintln!("adverb run: warning: {}", crate::devices::NO_DEVICE);
    }
    let sysroot = match args.no_preload {
        true => None,
        false => Some(sysroot::prepare(&devices)?),
    };
    let mut all =
        environment::variables(&libraries, sysroot.as_deref(), args.log, |name| std::env::var_os(name));
    all.extend(faults::variables(args.fault.as_ref(), args.capture.as_deref())?);
    Ok(all)
}

/// Where `exec` would find a program.
fn find(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists().then(|| program.into());
    }
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// Does the loader run it in secure mode, which ignores our variables?
fn is_privileged(path: &Path) -> bool {
    let user = nix::unistd::Uid::effective().as_raw();
    std::fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o4000 != 0 && m.uid() != user)
}

/// Why a program could not be started, and the exit status a shell gives then.
fn explain(program: &OsStr, error: &std::io::Error) -> (String, u8) {
    let name = program.to_string_lossy();
    let found = find(program, &std::env::var_os("PATH").unwrap_or_default());
    match (error.kind(), found) {
        (std::io::ErrorKind::NotFound, None) if name.contains('/') => {
            (format!("{name}: no such file"), NOT_FOUND)
        }
        (std::io::ErrorKind::NotFound, None) => {
            (format!("{name}: no such program in any directory of PATH"), NOT_FOUND)
        }
        (std::io::ErrorKind::NotFound, Some(path)) => (
            format!("{}: the interpreter or loader that it asks for is not there", path.display()),
            CANNOT_EXECUTE,
        ),
        (std::io::ErrorKind::PermissionDenied, found) => {
            let path = found.map_or(name.into_owned(), |p| p.display().to_string());
            let what = if Path::new(&path).is_dir() { "is a directory" } else { "may not be executed" };
            (format!("{path}: {what}"), CANNOT_EXECUTE)
        }
        (_, found) => {
            let path = found.map_or(name.into_owned(), |p| p.display().to_string());
            (format!("{path} cannot be started: {error}"), CANNOT_EXECUTE)
        }
    }
}

#[cfg(test)]
mod tests;
