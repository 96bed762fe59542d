//! Runs a test in its own process, because a process can choose faults and captures only once.
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit of the process.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the ignored test `name` of this test file in a process with these environment variables.
/// Returns the output of the process.
pub fn run(name: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]).env_remove("ADVERB_FAULT");
    command.envs(variables.iter().copied()).stdin(Stdio::null());
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut child = command.stdout(writer.try_clone().unwrap()).stderr(writer).spawn().unwrap();
    // Drop `command`, because it holds the write ends of the pipe.
    drop(command);
    let text = std::thread::spawn(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    });
    let end = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > end => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    let text = text.join().unwrap();
    let passed = status.is_some_and(|s| s.success()) && text.contains("1 passed");
    assert!(passed, "{name} with {variables:?}: {status:?}\n{text}");
    text
}

/// Writes the log of this process to standard error.
pub fn log() {
    adverb_device::logging::start("test", log::LevelFilter::Info);
}
