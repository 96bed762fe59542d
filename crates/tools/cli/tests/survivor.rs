//! The survivor: the process that `adverb run` leaves behind. It tells peers on other hosts when
//! the program is killed.
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

fn is_there(name: &str) -> bool {
    let held = std::fs::read_to_string("/proc/net/unix").unwrap();
    held.lines().any(|line| line.ends_with(&format!("@{name}")))
}

/// Starts a program under `adverb run` that prints its survivor's name and goes on.
fn start(then: &str) -> (Child, ChildStdout, String) {
    let program = format!("echo \"survivor=$ADVERB_SURVIVOR=\"; {then}");
    let mut run = Command::new(env!("CARGO_BIN_EXE_adverb"));
    run.args(["run", "--no-preload", "--", "sh", "-c", &program]).stdout(Stdio::piped());
    let mut run = run.spawn().unwrap();
    let mut out = run.stdout.take().unwrap();
    let (mut said, mut byte) = (String::new(), [0]);
    while said.matches('=').count() < 2 && out.read(&mut byte).is_ok_and(|n| n == 1) {
        said.push(char::from(byte[0]));
    }
    let name = said.split('=').nth(1).unwrap_or_default().to_owned();
    assert!(!name.is_empty(), "{said}");
    (run, out, name)
}

fn goes(name: &str) {
    let limit = Instant::now() + LIMIT;
    while is_there(name) {
        assert!(Instant::now() < limit, "the survivor is still there");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn ucm_12_a_survivor_ends_with_its_program_and_keeps_no_file_of_it_open() {
    let (mut run, mut out, name) = start("exec sleep 60");
    assert!(is_there(&name));
    run.kill().unwrap();
    assert_eq!(run.wait().unwrap().signal(), Some(9));
    // End of file comes when no process has the other end open any more.
    out.read_to_end(&mut Vec::new()).unwrap();
    goes(&name);
}

/// The survivor is not a child of the program. A program that waits for all of its children waits
/// only for the children that it started.
#[test]
fn ucm_12_a_survivor_is_no_child_of_the_program() {
    let children = "cat /proc/$$/task/$$/children; echo end";
    let (mut run, mut out, name) = start(children);
    let mut said = String::new();
    out.read_to_string(&mut said).unwrap();
    assert!(run.wait().unwrap().success());
    // At most the process that the shell itself started.
    let listed = said.trim().trim_end_matches("end").split_whitespace().count();
    assert!(listed <= 1, "{said}");
    goes(&name);
}
