//! The virtual machine, controlled by `scripts/vm/vm`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use adverb_foreign::process::Program;

/// Set by `vm with` for the process that runs beside the machine.
const INSIDE: &str = "ADVERB_VM_INSIDE";
/// Process id of the machine, also set by `vm with`.
const PID: &str = "ADVERB_VM_PID";
/// Time limit of a short command in the machine.
const SHORT: Duration = Duration::from_secs(60);

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/vm/vm")
}

/// Whether this process runs beside a machine, in its network namespace.
pub fn inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Starts this program again with its arguments, beside a machine that boots with `options` and
/// ends with the program. Returns only if this fails.
pub fn again_beside(options: &[&str]) -> ExitCode {
    let me = match std::env::current_exe() {
        Ok(me) => me,
        Err(why) => {
            eprintln!("own path: {why}");
            return ExitCode::FAILURE;
        }
    };
    let why = Command::new(script())
        .arg("with")
        .args(options)
        .arg("--")
        .arg(me)
        .args(std::env::args_os().skip(1))
        .exec();
    eprintln!("{}: {why}", script().display());
    ExitCode::FAILURE
}

/// A program of the machine, which runs there.
pub fn program<S: AsRef<str>>(name: &str, args: &[S]) -> Program {
    let mut all = vec!["exec", "--", name];
    all.extend(args.iter().map(AsRef::as_ref));
    Program::new(script().to_string_lossy(), &all).bare()
}

/// A line for the machine's shell.
pub fn shell(line: &str) -> Program {
    Program::new(script().to_string_lossy(), &["exec", "--", line]).bare()
}

/// Copies a file into the machine, executable.
///
/// # Errors
/// The error message of the machine.
pub fn put(file: &Path, to: &str) -> Result<(), String> {
    let file = file.to_string_lossy();
    Program::new(script().to_string_lossy(), &["put", file.as_ref(), to])
        .bare()
        .run(SHORT)?
        .require_ok()
}

/// Waits until a socket in the machine listens on the TCP port.
///
/// # Errors
/// No socket listens within the time.
pub fn await_port(port: u16, seconds: u32) -> Result<(), String> {
    let done = program("await-port", &[port.to_string(), seconds.to_string()]).run(SHORT)?;
    done.require_ok()
}

/// Waits until an id of the machine's connection manager listens at the port.
///
/// # Errors
/// No id listens within the time.
pub fn await_id(port: u16, seconds: u32) -> Result<(), String> {
    program("await-cm", &[port.to_string(), seconds.to_string()]).run(SHORT)?.require_ok()
}

/// State for the report of a hang in the machine: rxe's queue pairs and counters, the kernel stack
/// of each test program, and the last kernel messages.
pub fn state_of_rxe() -> String {
    let line = "echo '--- rxe'; rdma resource show qp; cd /sys/class/infiniband/rxe0/ports/1/hw_counters; grep . *; \
                for p in /proc/[0-9]*; do case $(cat $p/comm) in ib_*|ibv_*|interop-peer|rping|ucmatose|udaddy|rdma_*) \
                echo \"--- $p $(cat $p/comm) $(cut -d' ' -f3 $p/stat) $(cat $p/wchan)\"; cat $p/stack;; esac; done; dmesg | tail -n 20";
    shell(line).run(SHORT).map_or_else(|why| why, |out| format!("\n{}", out.text))
}

/// How long the machine's threads have waited for a processor of the host since boot. A timer that
/// expires meanwhile says nothing about the programs. Zero if the kernel does not count.
pub fn waited_for_processor() -> Duration {
    let Some(pid) = std::env::var_os(PID) else { return Duration::ZERO };
    let Ok(tasks) = std::fs::read_dir(Path::new("/proc").join(pid).join("task")) else {
        return Duration::ZERO;
    };
    let waited = tasks.flatten().filter_map(|task| {
        // Nanoseconds on a processor, nanoseconds of waiting, number of turns.
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse().ok().map(Duration::from_nanos)
    });
    waited.sum()
}
