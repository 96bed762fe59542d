//! Examinations of a checked program: at a failing end, at a fatal signal, and when the program
//! hangs or is asked. The program ends as it would without the check.
mod common;
use common::{Scratch, command, said};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A time limit far beyond the normal time on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
/// No further report comes within this time, several times `--stuck-after`.
const QUIET: Duration = Duration::from_secs(4);

/// Opens the device, and then does what the arguments say, in turn.
const PROGRAM: &str = r#"
#include <infiniband/verbs.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void crash(volatile int *p) { *p = 1; }

/* Calls nothing, on a stack without calls. */
static void lose(void) {
    char *end = (char *)calloc(1, 1 << 20) + (1 << 19);
#ifdef __x86_64__
    __asm__ volatile("mov %0, %%rsp; xor %%eax, %%eax; jmp *%%rax" :: "r"(end));
#else
    __asm__ volatile("mov sp, %0; br xzr" :: "r"(end));
#endif
}

static struct ibv_cq *open_queue(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
    struct ibv_cq *cq = context ? ibv_create_cq(context, 16, NULL, NULL, 0) : NULL;
    if (!cq) exit(100);
    return cq;
}

static void own(int signal) {
    (void)signal;
    write(1, "own\n", 4);
    _exit(4);
}

int main(int count, char **words) {
    struct ibv_cq *cq = open_queue();
    struct ibv_wc wc;
    int status;
    char byte;
    for (char **word = words + 1; *word; word++) {
        if (!strcmp(*word, "read")) while (read(0, &byte, 1) == 1) write(1, &byte, 1);
        if (!strcmp(*word, "status")) return 3;
        if (!strcmp(*word, "_exit")) _exit(3);
        if (!strcmp(*word, "abort")) abort();
        if (!strcmp(*word, "crash")) crash((int *)8);
        if (!strcmp(*word, "lose")) lose();
        if (!strcmp(*word, "alarm")) for (alarm(1);;) ibv_poll_cq(cq, 1, &wc);
        if (!strcmp(*word, "term")) for (kill(getpid(), SIGTERM);;) pause();
        if (!strcmp(*word, "own")) signal(SIGSEGV, own), signal(SIGQUIT, own);
        if (!strcmp(*word, "ignore")) signal(SIGQUIT, SIG_IGN);
        if (!strcmp(*word, "ready")) write(1, "ready\n", 6);
        if (!strcmp(*word, "fork")) {
            if (!fork()) { open_queue(); crash((int *)8); }
            wait(&status);
            return WIFSIGNALED(status) ? WTERMSIG(status) : 99;
        }
    }
    return 0;
}
"#;

/// The compiled program in a directory of its own.
struct Built(Scratch);

impl Built {
    fn new(name: &str) -> Built {
        let dir = Scratch::new(&format!("examine-{name}"));
        dir.write("p.c", PROGRAM);
        dir.shell("cc -g -O0 -w -o p p.c -libverbs");
        Built(dir)
    }

    fn start(&self, options: &[&str], words: &[&str]) -> Running {
        // The test's parent may ignore a signal. The program would inherit that.
        let mut command = common::program("env");
        command.args(["--default-signal", env!("CARGO_BIN_EXE_adverb"), "run"]);
        command.args(options).arg("--").arg(self.0.join("p")).args(words).current_dir(&self.0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (tell, lines) = channel();
        let errors = BufReader::new(child.stderr.take().unwrap());
        std::thread::spawn(move || {
            errors.lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Running { child, input, output, lines }
    }

    /// Runs the program to the end: exit status, signal, standard output and standard error.
    fn run(&self, options: &[&str], words: &[&str]) -> (Option<i32>, Option<i32>, String, String) {
        self.start(options, words).end()
    }
}

struct Running {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Lines of standard error.
    lines: Receiver<String>,
}

impl Running {
    fn ready(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(LIMIT).expect("a line on standard error")
    }

    /// The program answers, so it goes on.
    fn goes_on(&mut self) {
        self.input.as_mut().unwrap().write_all(b"x").unwrap();
        let mut byte = [0];
        self.output.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    /// Closes the program's input, and waits for the end.
    fn end(mut self) -> (Option<i32>, Option<i32>, String, String) {
        drop(self.input.take());
        let mut out = String::new();
        self.output.read_to_string(&mut out).unwrap();
        let status = self.child.wait().unwrap();
        let mut errors = String::new();
        while let Ok(line) = self.lines.recv_timeout(LIMIT) {
            errors += &format!("{line}\n");
        }
        (status.code(), status.signal(), out, errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line_of(part: &str) -> String {
    let n = PROGRAM.lines().position(|line| line.contains(part)).unwrap() + 1;
    format!("p.c:{n}")
}

/// CHK-15: exit status and signal stay the program's, whether the process is examined or not. The
/// report names the place of the failure.
#[test]
fn a_failing_program_ends_as_without_the_check() {
    let built = Built::new("ends");
    let crash = line_of("static void crash");
    let [abort, alarm, term, last] =
        ["abort()", "alarm(1)", "SIGTERM", "ibv_create_cq(context"].map(line_of);
    for (words, status, signal, report, place) in [
        // A status is no failure outside of a hunt.
        (&["status"][..], Some(3), None, "", ""),
        (&["_exit"], Some(3), None, "", ""),
        (&["abort"], None, Some(Signal::SIGABRT), "crashed", &*abort),
        (&["crash"], None, Some(Signal::SIGSEGV), "crashed", &crash),
        // The last verbs call stands for a lost stack.
        (&["lose"], None, Some(Signal::SIGSEGV), "crashed", &last),
        (&["alarm"], None, Some(Signal::SIGALRM), "waits", &alarm),
        (&["term"], None, Some(Signal::SIGTERM), "waits", &term),
        // The child of a fork is examined, and its parent sees the signal.
        (&["fork"], Some(Signal::SIGSEGV as i32), None, "crashed", &crash),
        // The program's own handler runs.
        (&["own", "crash"], Some(4), None, "", ""),
    ] {
        for options in [&["--check"][..], &["--stuck-after", "60s"], &[]] {
            let (code, killed, out, errors) = built.run(options, words);
            let what = format!("{options:?} {words:?}: {out}{errors}");
            assert_eq!((code, killed), (status, signal.map(|s| s as i32)), "{what}");
            assert_eq!(out, if words[0] == "own" { "own\n" } else { "" }, "{what}");
            let reports: Vec<_> = errors.lines().filter(|l| l.contains("check: ")).collect();
            let is_named =
                |l: &&str| l.contains(&format!("check: {report}: ")) && l.contains(place);
            let is_reported = !options.is_empty() && !report.is_empty();
            assert_eq!(reports.iter().any(is_named), is_reported, "{what}");
            assert!(is_reported || reports.is_empty(), "{what}");
        }
    }
}

/// CHK-15: a program whose threads sleep is reported once for each state, and goes on.
#[test]
fn a_sleeping_program_is_reported_once() {
    let built = Built::new("stuck");
    let mut run = built.start(&["--stuck-after", "1s"], &["read"]);
    for _ in 0..2 {
        let line = run.line();
        assert!(line.contains("check: waits: ") && line.contains(&line_of("\"read\"")), "{line}");
        let more = run.lines.recv_timeout(QUIET);
        assert_eq!(more, Err(RecvTimeoutError::Timeout));
        run.goes_on();
    }
    let (code, signal, _, errors) = run.end();
    assert_eq!((code, signal), (Some(0), None), "{errors}");
    assert_eq!(errors.matches("check: ").count(), 0, "{errors}");
}

/// CHK-15: SIGQUIT asks, any number of times, and the program goes on. Without the option, SIGQUIT
/// ends the program.
#[test]
fn a_program_can_be_asked() {
    let built = Built::new("asked");
    let mut run = built.start(&["--stuck-after", "60s"], &["ready", "read"]);
    run.ready();
    for _ in 0..3 {
        run.signal(Signal::SIGQUIT);
        let line = run.line();
        assert!(line.contains("check: waits: ") && line.contains("p.c:"), "{line}");
        run.goes_on();
    }
    let (code, signal, _, errors) = run.end();
    assert_eq!((code, signal, &*errors), (Some(0), None, ""));

    let mut run = built.start(&["--check"], &["ready", "read"]);
    run.ready();
    run.signal(Signal::SIGQUIT);
    // The input stays open, so only the signal can end the program.
    assert_eq!(run.child.wait().unwrap().signal(), Some(Signal::SIGQUIT as i32));
}

/// CHK-15: a program that handles or ignores SIGQUIT is not examined at SIGQUIT.
#[test]
fn a_program_keeps_its_own_action_for_the_question() {
    let built = Built::new("own");
    for (word, status, said) in [("own", 4, "own\n"), ("ignore", 0, "x")] {
        let mut run = built.start(&["--stuck-after", "60s"], &[word, "ready", "read"]);
        run.ready();
        run.signal(Signal::SIGQUIT);
        // The program with a handler may have ended.
        let _ = run.input.as_mut().unwrap().write_all(b"x");
        let (code, signal, out, errors) = run.end();
        assert_eq!((code, signal, &*out), (Some(status), None, said), "{word}: {errors}");
        assert!(!errors.contains("check: "), "{errors}");
    }
}

/// HUN-8: the files of a hunt name the cause, and a suppressed report is no cause.
#[test]
fn the_files_of_a_hunt_name_the_cause() {
    let built = Built::new("hunt");
    let hunt = |options: &[&str], status| {
        let words = ["hunt", "--time", "20s", "--junit", "h.xml", "--sarif", "h.sarif"];
        let words = [&words[..], options, &["--", "./p", "crash"]].concat();
        said(&command(&words).current_dir(&built.0).output().unwrap(), status)
    };
    let number = line_of("static void crash");
    let number = number.trim_start_matches("p.c:");

    let text = hunt(&[], 1);
    assert!(text.contains("cause:"), "{text}");
    let (junit, sarif) = (built.0.read("h.xml"), built.0.read("h.sarif"));
    let failure = junit.lines().find(|line| line.contains("<failure message=")).unwrap();
    let (message, _) = failure.split_once(" type=").unwrap();
    assert!(message.contains("SIGSEGV; the program fails with signal 11"), "{message}");
    assert!(sarif.contains("SIGSEGV; the program fails with signal 11"), "{sarif}");
    assert!(sarif.contains(&format!("\"startLine\": {number}\n")), "{sarif}");

    built.0.write("unwanted", "crashed\n");
    let text = hunt(&["--check-suppress", "unwanted"], 1);
    assert!(text.contains("SIGSEGV"), "{text}");
    assert!(!text.contains("the program fails with signal 11"), "{text}");
    assert!(!built.0.read("h.sarif").contains("\"startLine\""), "{text}");

    let text = hunt(&["--check-suppress", "no-such-file"], 125);
    assert!(text.contains("no-such-file: "), "{text}");
}
