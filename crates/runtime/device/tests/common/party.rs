//! Another process that runs a test of the same file. The test and the process exchange lines while
//! both use the device.
use super::QpEnd;
use adverb_device::engine::PathMtu;
use adverb_device::engine::wr::Remote;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The time limit of an answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Lines for the test begin with this mark. The test harness prints other lines.
const MARK: &str = "@";

/// The process. It is killed when the `Party` is dropped.
pub struct Party {
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
    name: String,
}

impl Party {
    /// Runs the ignored test `name` of this file.
    pub fn start(name: &str, variables: &[(&str, &str)]) -> Party {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Party::spawn(name, command.envs(variables.iter().copied()))
    }

    /// Runs the ignored test `name` by a command that runs this file.
    pub fn spawn(name: &str, command: &mut Command) -> Party {
        command.args(["--exact", name, "--ignored", "--nocapture"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = loop {
            match command.spawn() {
                // Another thread has just forked while a copy of the program was open for writing.
                Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::yield_now();
                }
                child => break child.unwrap(),
            }
        };
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                // The harness may have printed the start of the line.
                if let Some((_, said)) = line.split_once(MARK) {
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        Party { input: child.stdin.take(), child, lines, name: name.to_owned() }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    /// Waits until the process has stopped. A thread may work on for a moment after SIGSTOP.
    pub fn wait_stopped(&self) {
        let stopped = waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED)).unwrap();
        assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    }

    pub fn stop(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
        self.wait_stopped();
    }

    pub fn go_on(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }

    /// Connects an end of this process to the end with which the process called [`meet`]. Returns
    /// the queue pair number, and the memory of that end.
    pub fn meet(&mut self, end: &QpEnd) -> (u32, Remote) {
        let (qpn, remote) = parse(&self.hear());
        self.say(&introduce(end));
        end.connect_to(qpn, PathMtu::Mtu1024);
        (qpn, remote)
    }

    pub fn say(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Waits for the next line of the process.
    pub fn hear(&mut self) -> String {
        match self.lines.recv_timeout(LIMIT) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("{} says nothing", self.name),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("{} has ended: {:?}", self.name, self.child.wait())
            }
        }
    }

    /// The next line of the process, if there is one.
    pub fn has_said(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// Tells the process to end, and checks that it ends with success.
    pub fn finish(mut self) {
        drop(self.input.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{}: {status:?}", self.name);
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Called in the process: sends a line to the test.
pub fn tell(line: &str) {
    println!("{MARK}{line}");
}

/// Called in the process: waits for the next line of the test. `None` after the test has closed the
/// pipe.
pub fn listen() -> Option<String> {
    let mut line = String::new();
    let n = std::io::stdin().read_line(&mut line).unwrap();
    (n > 0).then(|| line.trim_end().to_owned())
}

/// Called in the process: waits until the test has closed the pipe.
pub fn stay() {
    while listen().is_some() {}
}

/// Called in the process: connects an end to an end of the test, which calls [`Party::meet`].
pub fn meet(end: &QpEnd) -> (u32, Remote) {
    tell(&introduce(end));
    let (qpn, remote) = parse(&listen().unwrap());
    end.connect_to(qpn, PathMtu::Mtu1024);
    (qpn, remote)
}

/// The line that describes an end to the other process.
pub fn introduce(end: &QpEnd) -> String {
    format!("{} {} {}", end.qp.number(), end.pages.key(), end.pages.addr())
}

/// Parses a line of [`introduce`]: the queue pair number, and the address and key of the memory.
pub fn parse(line: &str) -> (u32, Remote) {
    let mut words = line.split(' ');
    let mut next = || words.next().unwrap().parse::<u64>().unwrap();
    let (qpn, rkey, va) = (next(), next(), next());
    (qpn as u32, Remote { va, rkey: rkey as u32 })
}
