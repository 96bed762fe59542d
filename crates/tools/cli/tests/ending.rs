//! No child of the command survives the command, whichever signal ends the command.
mod common;
use common::{Scratch, said};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// A time limit far beyond the normal time on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Set in the environment of the command, and so in every process of the command.
const MARK: &str = "ADVERB_TEST_MARK";
const SIGNALS: [Signal; 5] =
    [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT];

/// Four spinning processes: the program, a child, a grandchild without its parent, and a process
/// in a separate session. Each makes a file when it begins.
const SPINNERS: &str = r#"
spin=': > "$0"; while :; do :; done'
sh -c "$spin" "$1/child" &
(sh -c "$spin" "$1/grandchild" &)
(setsid sh -c "$spin" "$1/session" &)
: > "$1/program"
while :; do :; done
"#;
const FILES: [&str; 4] = ["child", "grandchild", "session", "program"];

/// A directory. The path is the mark of the trial's processes.
struct Trial(Scratch);

impl Trial {
    fn new(name: &str) -> Trial {
        Trial(Scratch::new(&format!("ending-{name}")))
    }

    fn command(&self, args: &[&str]) -> Command {
        // The test's parent may ignore a signal, as `nohup` does. The command would
        // inherit that.
        let mut command = Command::new("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_adverb")]);
        command.args(args).env(MARK, self.0.str()).env("TMPDIR", self.0.str()).current_dir(&self.0);
        // A separate process group, as `timeout` makes.
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        command
    }

    fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// Starts the command with spinning programs.
    fn spinning(&self, options: &[&str]) -> Child {
        let run =
            self.start(&[options, &["--", "sh", "-c", SPINNERS, "sh", self.0.str()]].concat());
        until("the programs spin", || FILES.iter().all(|file| self.0.join(file).exists()));
        run
    }

    /// The living processes with the mark.
    fn left(&self) -> BTreeSet<i32> {
        let wanted = format!("{MARK}={}", self.0.str());
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let marked = |dir: &Path| {
            let environment = std::fs::read(dir.join("environ")).unwrap_or_default();
            environment.split(|b| *b == 0).any(|entry| entry == wanted.as_bytes())
        };
        let marked = all.filter(|entry| marked(&entry.path()));
        marked.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    /// Waits until no process is left. Fails if a directory of a hunt is left.
    fn all_ended(&self, what: &str) {
        until(&format!("nothing is left after {what}"), || self.left().is_empty());
        let names = std::fs::read_dir(&self.0).unwrap().flatten().map(|entry| entry.file_name());
        let hunts: Vec<_> =
            names.filter(|n| n.to_string_lossy().starts_with("adverb-hunt-")).collect();
        assert!(hunts.is_empty(), "{what}: {hunts:?}");
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        for pid in self.left() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let limit = Instant::now() + LIMIT;
    while !done() {
        assert!(Instant::now() < limit, "{what}: not in {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id() as i32)
}

/// Sends the signal to the command, and waits for the end of all processes.
fn ends(trial: &Trial, mut run: Child, signal: Signal) {
    kill(pid(&run), signal).unwrap();
    // If a program left this pipe to other processes, reading it would block the test.
    drop(run.stdout.take());
    assert_eq!(run.wait().unwrap().signal(), Some(signal as i32));
    trial.all_ended(signal.as_str());
}

/// HUN-12: the programs of a hunt, and their children, end with the hunt.
#[test]
fn a_hunt_leaves_nothing_behind() {
    for signal in SIGNALS.into_iter().filter(|signal| *signal != Signal::SIGINT) {
        let trial = Trial::new(&format!("hunt-{signal}"));
        ends(&trial, trial.spinning(&["hunt"]), signal);
    }
}

/// HUN-12, HUN-16: the first SIGINT ends a hunt with the result so far.
#[test]
fn an_interrupted_hunt_leaves_nothing_behind() {
    let trial = Trial::new("hunt-interrupted");
    let run = trial.spinning(&["hunt"]);
    kill(pid(&run), Signal::SIGINT).unwrap();
    let text = said(&run.wait_with_output().unwrap(), 3);
    assert_eq!(text, "adverb hunt: stopped in the first run\n");
    trial.all_ended("SIGINT");
}

/// Opens the device, polls a queue, and adds a line to the file `runs`.
const POLLS: &str = r#"
#include <infiniband/verbs.h>
#include <stdio.h>

int main(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
    struct ibv_cq *cq = context ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
    struct ibv_wc wc;
    FILE *runs = fopen("runs", "a");
    return !cq || ibv_poll_cq(cq, 1, &wc) || !runs || fputs("run\n", runs) < 0 || fclose(runs);
}
"#;

/// HUN-16: SIGINT ends a hunt with the summary and the coverage. The exit status says what was
/// found. A second SIGINT ends the hunt at once.
#[test]
fn an_interrupted_hunt_prints_its_summary() {
    let trial = Trial::new("summary");
    trial.0.write("polls.c", POLLS);
    trial.0.shell("cc -w -o polls polls.c -libverbs");
    let runs = || trial.0.read("runs").lines().count();
    // By then every single choice of the single place was tried.
    const ENOUGH: usize = 20;
    let words = ["hunt", "--time", "1h", "--jobs", "1", "--", "./polls"];
    let run = trial.start(&words);
    until("the program runs", || runs() >= ENOUGH);
    kill(pid(&run), Signal::SIGINT).unwrap();
    let text = said(&run.wait_with_output().unwrap(), 0);
    assert!(text.contains("\nadverb hunt: nothing found in "), "{text}");
    assert!(text.contains("\n  tried:   ") && text.contains(" single choices, "), "{text}");
    trial.all_ended("SIGINT with a summary");

    // The hunt cannot write its summary, so only the second signal ends the hunt.
    let (full, _reader) = UnixStream::pair().unwrap();
    full.set_nonblocking(true).unwrap();
    while (&full).write(&[b'x'; 1024]).is_ok() {}
    full.set_nonblocking(false).unwrap();
    let mut command = trial.command(&words);
    let mut run = command.stdout(std::os::fd::OwnedFd::from(full)).spawn().unwrap();
    let before = runs();
    until("the program runs again", || runs() > before);
    until("the second signal ends the hunt", || {
        let _ = kill(pid(&run), Signal::SIGINT);
        run.try_wait().unwrap().is_some()
    });
    assert_eq!(run.wait().unwrap().signal(), Some(Signal::SIGINT as i32));
    trial.all_ended("a second SIGINT");
}

/// HUN-12: the same for a traced run.
#[test]
fn a_traced_run_leaves_nothing_behind() {
    for signal in SIGNALS {
        let trial = Trial::new(&format!("trace-{signal}"));
        ends(&trial, trial.spinning(&["run", "--trace", "trace"]), signal);
    }
}

/// HUN-12: the same for the second process of the demonstration.
#[test]
fn a_demonstration_leaves_nothing_behind() {
    for signal in SIGNALS {
        let trial = Trial::new(&format!("demo-{signal}"));
        let mut run = trial.start(&["demo"]);
        let mut line = String::new();
        BufReader::new(run.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("processes "), "{line}");
        // The closed output does not end the demonstration.
        ends(&trial, run, signal);
    }
}

/// HUN-12: all processes end after SIGKILL to the whole process group, as `timeout -s KILL` sends
/// it, and after SIGKILL to any single process of the command.
#[test]
fn no_process_of_the_command_is_needed_for_the_end() {
    for options in [&["hunt"][..], &["run", "--trace", "trace"]] {
        let trial = Trial::new(&format!("group-{}", options[0]));
        let run = trial.spinning(options);
        killpg(pid(&run), Signal::SIGKILL).unwrap();
        ends(&trial, run, Signal::SIGKILL);
        let own = std::fs::canonicalize(env!("CARGO_BIN_EXE_adverb")).unwrap();
        let is_own = |pid: &i32| {
            let exe = std::fs::read_link(format!("/proc/{pid}/exe"));
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            // The survivor serves the peers of the program. The survivor is not needed for the end
            // of the processes.
            exe.is_ok_and(|exe| exe == own)
                && name.is_ok_and(|name| name.trim_end() != "adverb-survivor")
        };
        for n in 0.. {
            let trial = Trial::new(&format!("each-{}-{n}", options[0]));
            let mut run = trial.spinning(options);
            let mut commands = trial.left();
            commands.retain(is_own);
            let Some(victim) = commands.iter().nth(n).copied() else {
                assert_eq!(n, 3, "processes of the command");
                ends(&trial, run, Signal::SIGTERM);
                break;
            };
            kill(Pid::from_raw(victim), Signal::SIGKILL).unwrap();
            drop(run.stdout.take());
            run.wait().unwrap();
            trial.all_ended(&format!("SIGKILL to process {n} of {options:?}"));
        }
    }
}

/// HUN-12: processes left running by a program end with each run of the hunt. A second run does
/// not meet them.
#[test]
fn a_hunt_ends_what_programs_leave_running() {
    let trial = Trial::new("leftover");
    let script = r#"(setsid sh -c 'while :; do :; done' &) ; sleep 0.1; exit 3"#;
    let mut run = trial.start(&["hunt", "--", "sh", "-c", script]);
    drop(run.stdout.take());
    assert_eq!(run.wait().unwrap().code(), Some(1));
    trial.all_ended("a hunt that found something");
}

/// As without `--trace`, a traced program that ends by itself may leave a process running.
#[test]
fn a_traced_program_may_leave_a_process_running() {
    let trial = Trial::new("stays");
    let script = r#"(setsid sh -c 'echo $$ > stays; exec sleep 600' >&- 2>&- &); until [ -s stays ]; do sleep 0.01; done; exit 3"#;
    let mut run = trial.start(&["run", "--trace", "trace", "--", "sh", "-c", script]);
    assert_eq!(run.wait().unwrap().code(), Some(3));
    let stays: i32 = trial.0.read("stays").trim().parse().unwrap();
    until("only that process is left", || trial.left() == BTreeSet::from([stays]));
}
