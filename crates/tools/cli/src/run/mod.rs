//! `adverb run`: any program, with the drop-in libraries in place.
mod check;
mod copies;
mod dropins;
mod elf;
mod environment;
mod faults;
mod image;
mod links;
mod namespaces;
mod runtime;
mod sockets;
mod sysroot;
mod trace;
mod tree;

pub use check::suppression;
pub use links::{Args as LinkArgs, main as rdma_link};

use adverb_device::faults::Spec;
use adverb_device::nic::Nic;
use adverb_device::selection::{self, Selection};
use nix::sys::statvfs::FsFlags;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Exit status of a shell if a program is found but cannot be executed.
const CANNOT_EXECUTE: u8 = 126;
/// Exit status of a shell if no program is found.
const NOT_FOUND: u8 = 127;
/// Exit status of `env` if `env` itself fails.
pub const OWN_FAILURE: u8 = 125;

/// Runs a program on the software RDMA device
///
/// The program replaces this process, with its own exit status, signals and terminal. Programs
/// started by the program inherit the device. No cleanup is needed afterwards.
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  adverb run -- ibv_devinfo -v\n  adverb run -- ib_send_lat -d \
                        adverb0\n\nExit status: the status of PROGRAM; 125 if adverb fails, 126 \
                        if PROGRAM cannot be executed, 127 if PROGRAM is not found."
)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    /// Record calls, requests, completions, events and packets of all processes, for
    /// ui.perfetto.dev (docs/trace.md), and as lines of JSON in FILE.jsonl
    ///
    /// The program is then a child of this process, and this process ends as the program ends.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write the reports of all processes as a JUnit test report, with one test for each code
    ///
    /// The program is then a child of this process, and this process ends as the program ends.
    #[arg(long, value_name = "FILE", requires = "check")]
    check_junit: Option<PathBuf>,
    /// Write the same reports as SARIF, for code scanning
    #[arg(long, value_name = "FILE", requires = "check")]
    check_sarif: Option<PathBuf>,
    /// The namespaces of a hunt's box, which this process enters first
    #[arg(long, value_name = "FILE", hide = true)]
    namespace: Vec<PathBuf>,
    /// The program, searched in PATH, and its arguments
    // Options before the program's name belong to `adverb run`, options after the name to the
    // program.
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        value_hint = clap::ValueHint::CommandWithArguments
    )]
    program: Vec<OsString>,
}

/// What a program is run with.
#[derive(clap::Args)]
pub struct Options {
    /// The devices: `all`, interfaces (lo,eth0), or names (rxe0, rxe0@eth0, rxe0@192.0.2.1)
    ///
    /// Separated by commas, or each with its own option. An interface is a device, named adverb_
    /// and the interface's name. NAME@INTERFACE and NAME@ADDRESS give the device a name, and
    /// several devices may be on one interface. Another word names a device for all interfaces that
    /// lead out. Without this option there is one such device, adverb0.
    #[arg(long, value_name = "LIST")]
    device: Vec<Selection>,
    /// The level of the device's log on standard error: off, error, warn, info, debug, trace
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    log: Option<log::LevelFilter>,
    /// Omit the preloaded library that shows programs /dev/infiniband and
    /// /sys/class/infiniband
    #[arg(long)]
    no_preload: bool,
    /// Replace also copies of libibverbs that the program is linked with by a run path
    ///
    /// Copies that a program opens, or that an opened library needs, are replaced in any case. This
    /// option needs an auditor of the loader (LD_AUDIT). The auditor leaves less room for
    /// thread-local variables of libraries, so a sanitizer or another allocator may fail to load.
    #[arg(long, conflicts_with = "no_replace")]
    replace: bool,
    /// Keep all copies of libibverbs that the program brings along
    #[arg(long)]
    no_replace: bool,
    /// Carry the program's TCP connections over RDMA: sockets become rsockets of the distribution's
    /// librdmacm
    ///
    /// For programs without RDMA code, at both ends: a connection to a peer without this option
    /// stays TCP. The option needs the distribution's librspreload (Debian: package librdmacm1), or
    /// DIR with librdmacm.so.1 and librspreload.so of another rdma-core, such as `build/lib` of its
    /// sources. UDP stays the kernel's.
    #[arg(
        long,
        value_name = "DIR",
        num_args = 0..=1,
        require_equals = true,
        conflicts_with = "no_preload"
    )]
    sockets: Option<Option<PathBuf>>,
    #[arg(
        long,
        value_name = "SPEC",
        help = format!("Faults to inject, separated by commas: {}", Spec::examples())
    )]
    fault: Option<Spec>,
    /// Record the packets that the program sends and receives, for Wireshark (pcapng)
    ///
    /// Each further process of the program puts its process number before the extension. So does
    /// every process while another run writes FILE. The file of an earlier capture is replaced.
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
    #[arg(
        long,
        value_name = "NIC",
        value_parser = nic,
        help = format!(
            "Stand for a NIC, with the NIC's limits and missing features: {} (docs/nics.md)",
            Nic::names()
        )
    )]
    as_nic: Option<String>,
    /// Repeat the choices of a hunt: the schedule in a file, or the schedule of a seed (`adverb
    /// hunt`)
    #[arg(long, value_name = "FILE_OR_SEED")]
    replay: Option<PathBuf>,
    /// Report mistakes of the program while the program still works (docs/check.md)
    #[arg(long)]
    check: bool,
    /// Report what the program waits for when all of its threads have slept for this time: 30s, 10m
    ///
    /// SIGQUIT asks for the same report at once. Includes --check.
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    stuck_after: Option<Duration>,
    /// A file of unwanted reports: each line has a code or `*`, and optionally a pattern for the
    /// text
    #[arg(long, value_name = "FILE", requires = "check")]
    check_suppress: Option<PathBuf>,
    /// The exit status after a report, if the program ends with 0
    #[arg(long, value_name = "STATUS", requires = "check", value_parser = clap::value_parser!(u8).range(1..))]
    check_exit: Option<u8>,
}

fn level(text: &str) -> Result<log::LevelFilter, String> {
    text.trim().parse().map_err(|_| "off, error, warn, info, debug and trace are possible".into())
}

fn nic(name: &str) -> Result<String, String> {
    Nic::by_name(name).map(|nic| nic.name.into())
}

/// Refuses a value of `ADVERB_LOG` unknown to the device, before the program starts.
fn check_level(args: &Options, value: Option<OsString>) -> Result<(), String> {
    let value = value.filter(|v| args.log.is_none() && !v.is_empty());
    let Some(value) = value else { return Ok(()) };
    let text = value.to_string_lossy();
    level(&text).map(drop).map_err(|why| format!("ADVERB_LOG is {text:?}: {why}"))
}

pub fn main(args: &Args) -> ExitCode {
    run(args).unwrap_or_else(|error| {
        crate::out::errln!("adverb run: {}", error.text);
        ExitCode::from(error.status)
    })
}

/// Why the program did not run, and the exit status.
struct RunError {
    text: String,
    status: u8,
}

impl From<String> for RunError {
    fn from(text: String) -> Self {
        RunError { text, status: OWN_FAILURE }
    }
}

fn run(args: &Args) -> Result<ExitCode, RunError> {
    namespaces::enter(&args.namespace)?;
    adverb_survivor::see_children();
    let is_watched =
        args.trace.is_some() || args.check_junit.is_some() || args.check_sarif.is_some();
    if is_watched {
        // Processes left running by the program stay, as without these options.
        crate::guard(adverb_survivor::AtEnd { leave_running: true, remove: None });
    }
    let (program, arguments) = args.program.split_first().expect("clap requires one");
    let path = find(program, &std::env::var_os("PATH").unwrap_or_default());
    let mut variables = variables(&args.options, path.as_deref())?;
    if let Some(path) = path {
        image::obstacles(&path, is_privileged(&path)).iter().for_each(|text| warn(text));
    }
    // The process id of the program. With this id, a program that clears the environment can be
    // named in a message.
    variables.push(("ADVERB_RUN", std::process::id().to_string().into()));
    match adverb_survivor::leave_behind(crate::stat::objects) {
        Ok((name, value)) => variables.push((name, value.into())),
        Err(e) => warn(&format!(
            "no survivor runs, so peers on other hosts will not hear if the program is killed with \
             open rdma_cm connections, and rdma res has no objects: {e}"
        )),
    }
    let mut command = Command::new(program);
    command.args(arguments).envs(variables);
    if is_watched {
        return watched(args, program, command);
    }
    adverb_survivor::give_back(&mut command);
    Err(explain(program, &command.exec()))
}

/// Runs the program as a child. Then merges the output of all processes into the requested
/// files. Fails if the program does not start.
fn watched(args: &Args, program: &OsStr, mut command: Command) -> Result<ExitCode, RunError> {
    let trace = args.trace.as_deref().map(trace::Trace::begin).transpose()?;
    let reports = check::Reports::begin(args.check_junit.as_deref(), args.check_sarif.as_deref())
        .inspect_err(|_| trace.iter().for_each(trace::Trace::forget))?;
    command.envs(trace.as_ref().map(trace::Trace::variable));
    command.envs(reports.as_ref().map(check::Reports::variable));
    let status = trace::run(&mut command).map_err(|error| {
        trace.iter().for_each(trace::Trace::forget);
        reports.iter().for_each(check::Reports::forget);
        explain(program, &error)
    })?;
    if let Some(trace) = &trace {
        trace.end().unwrap_or_else(|text| warn(&text));
    }
    if let Some(reports) = &reports {
        reports.end(&args.program).unwrap_or_else(|text| warn(&text));
    }
    Ok(adverb_survivor::end_as(status))
}

/// The directory of the drop-in libraries of the command at `exe`.
pub fn libraries(exe: &Path) -> Result<PathBuf, String> {
    dropins::find(exe, true).map(|found| found.directory)
}

/// The environment variables to set for a program. `program` is the program's path, if known.
pub fn variables(
    args: &Options,
    program: Option<&Path>,
) -> Result<Vec<(&'static str, OsString)>, String> {
    check_level(args, std::env::var_os("ADVERB_LOG"))?;
    let exe = own_path()?;
    let mut libraries = dropins::find(&exe, !args.no_preload)?;
    libraries.audit = libraries.audit.filter(|_| args.replace);
    if let Some(program) = program.filter(|_| !args.replace && !args.no_replace) {
        stand_in_front(program, &mut libraries, args.no_preload);
    }
    if let Some(directory) = &args.sockets {
        let said = sockets::over_rdma(&exe, directory.as_deref(), &mut libraries)?;
        said.iter().for_each(|text| warn(text));
    }
    let devices = crate::devices::selected(&args.device)?;
    if devices.is_empty() {
        warn(crate::devices::NO_DEVICE);
    }
    if let Some(why) = &libraries.nameless {
        warn(&format!(
            "no directory can be made for the names of the drop-in libraries, so the libraries are \
             preloaded: {why}"
        ));
    }
    let sysroot = match args.no_preload {
        true => None,
        false => sysroot::prepare(&devices, selection::selection())
            .map_or_else(|why| without_sysroot(&why), Some),
    };
    let mut all = environment::variables(
        &libraries,
        !args.no_replace,
        sysroot.as_deref(),
        args.log,
        |name| std::env::var_os(name),
    );
    all.extend(faults::variables(args.fault.as_ref(), args.capture.as_deref())?);
    if args.check || args.stuck_after.is_some() {
        all.extend(check::variables(args.check_suppress.as_deref(), args.check_exit)?);
    }
    let seconds = |time: Duration| time.as_secs().max(1).to_string();
    all.extend(args.stuck_after.map(|time| ("ADVERB_CHECK_STUCK", seconds(time).into())));
    all.extend(links::variable(sysroot.as_deref(), !args.device.is_empty())?);
    let asked = Selection::joined(&args.device);
    all.extend(asked.map(|list| (selection::VARIABLE, list.to_string().into())));
    all.extend(args.as_nic.as_ref().map(|name| (adverb_device::nic::VARIABLE, name.into())));
    all.extend(args.replay.as_deref().map(faults::replay).transpose()?);
    Ok(all)
}

/// Preloads the drop-ins if the program is linked with copies of the libraries. The loader finds
/// such copies without `LD_LIBRARY_PATH`, and preloaded libraries come before the copies.
fn stand_in_front(program: &Path, libraries: &mut dropins::Libraries, no_preload: bool) {
    let theirs = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let paths = copies::Paths {
        ours: &libraries.directory,
        theirs: std::env::split_paths(&theirs).collect(),
    };
    let brought = copies::brought(&image::program_of(program), &paths);
    if libraries.nameless.is_some() {
        return;
    }
    for library in adverb_text::copies::Library::ALL {
        let Some((_, copy)) = brought.iter().find(|(of, _)| *of == library) else { continue };
        if no_preload {
            warn(&format!(
                "{} is linked with another copy of the library, {}, which does not see the device: \
                 omit --no-preload, or use --replace",
                program.display(),
                copy.display()
            ));
            continue;
        }
        let file = libraries.directory.join(OsStr::from_bytes(library.file()));
        libraries.preload.insert(0, file);
    }
}

/// Warns that there is no sysroot. Only programs that look for devices by themselves need the
/// sysroot; for all others the libraries suffice.
fn without_sysroot(why: &str) -> Option<PathBuf> {
    warn(&format!(
        "no directory can be made for the files of /dev/infiniband and /sys/class/infiniband; \
         programs that read these files (UCX, NCCL) will find no device, and all other programs \
         work: {why}; set XDG_RUNTIME_DIR to a directory of mode 700 with room"
    ));
    None
}

/// The path of this command.
pub fn own_path() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|e| format!("the path of this command cannot be read: {e}"))
}

/// A random number for a name that no other user can know.
fn random() -> Result<u64, String> {
    getrandom::u64().map_err(|e| format!("the kernel gives no random number: {e}"))
}

/// A path beside a file: the file's path with more behind it.
fn beside(file: &Path, more: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(more);
    path.into()
}

fn warn(text: &str) {
    crate::out::errln!("adverb run: warning: {text}");
}

/// The path at which `exec` would find a program.
fn find(program: &OsStr, path: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Path::new(program).exists().then(|| program.into());
    }
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// Does the loader run the program in secure mode? In secure mode the loader ignores Adverb's
/// variables.
fn is_privileged(path: &Path) -> bool {
    let (user, group) =
        (nix::unistd::Uid::effective().as_raw(), nix::unistd::Gid::effective().as_raw());
    let ignored =
        nix::sys::statvfs::statvfs(path).is_ok_and(|s| s.flags().contains(FsFlags::ST_NOSUID));
    let by_mode = std::fs::metadata(path).is_ok_and(|m| {
        let mode = m.permissions().mode();
        mode & 0o4000 != 0 && m.uid() != user || mode & 0o2000 != 0 && m.gid() != group
    });
    // Root already has all capabilities.
    let by_capabilities =
        || !nix::unistd::Uid::current().is_root() && adverb_os::has_capabilities(path);
    !ignored && (by_mode || by_capabilities())
}

/// Why a program could not be started, with the exit status of a shell in this case.
fn explain(program: &OsStr, error: &std::io::Error) -> RunError {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let found = find(program, &std::env::var_os("PATH").unwrap_or_default());
    let is_found = found.is_some();
    let path = found.as_deref().unwrap_or(Path::new(program)).display().to_string();
    let text = match error.kind() {
        NotFound if is_found => {
            format!("{path}: the interpreter or loader of this program does not exist")
        }
        NotFound if path.contains('/') => format!("{path}: no such file"),
        NotFound => format!("{path}: no such program in any directory of PATH"),
        PermissionDenied if Path::new(&path).is_dir() => format!("{path}: is a directory"),
        PermissionDenied => format!("{path}: may not be executed"),
        _ => format!("{path} cannot be started: {error}"),
    };
    let is_missing = error.kind() == NotFound && !is_found;
    RunError { text, status: if is_missing { NOT_FOUND } else { CANNOT_EXECUTE } }
}

#[cfg(test)]
mod tests;
