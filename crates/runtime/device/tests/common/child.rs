//! Runs a test in its own process, because a process can choose faults and captures only once.
use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The time limit of the process.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a command to its end, or kills it after `limit`. Returns the status, and the texts on
/// standard output and standard error.
pub fn output(command: &mut Command, limit: Duration) -> (Option<ExitStatus>, [String; 2]) {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let pipes: [Box<dyn Read + Send>; 2] =
        [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
    let readers = pipes.map(|mut pipe| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            pipe.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        })
    });
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if Instant::now() > end => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    (status, readers.map(|reader| reader.join().unwrap()))
}

/// Runs the ignored test `name` of this test file in a process with these environment variables.
/// Returns the output of the process.
pub fn run(name: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]).env_remove("ADVERB_FAULT");
    let (status, texts) = output(command.envs(variables.iter().copied()), LIMIT);
    let text = texts.concat();
    let passed = status.is_some_and(|s| s.success()) && text.contains("1 passed");
    assert!(passed, "{name} with {variables:?}: {status:?}\n{text}");
    text
}

/// Writes the log of this process to standard error.
pub fn log() {
    adverb_device::logging::start("test", log::LevelFilter::Info);
}
