//! Children with a time limit and collected output, which always end.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Verdict;

mod finished;

pub use finished::{Finished, columns};

/// Pause between two checks of a wait.
const TICK: Duration = Duration::from_millis(5);
/// How long the last output of an ended child is awaited. The first limit holds while other
/// processes of its group still have its streams. The second holds when no other process should
/// have them, on a busy machine.
const LAST_WORDS: [Duration; 2] = [Duration::from_secs(2), Duration::from_secs(10)];

/// The `adverb` command under test: `$ADVERB`, or `release/adverb` in the target directory of this
/// test binary.
///
/// # Errors
/// Names the missing path and how to build it.
pub fn adverb() -> Result<PathBuf, String> {
    let path = match std::env::var_os("ADVERB") {
        Some(path) => PathBuf::from(path),
        None => target_dir()?.join("release/adverb"),
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(format!(
        "{} is missing: run `make` first, or set ADVERB to the command to test",
        path.display()
    ))
}

/// The cargo target directory of the running test binary (`TARGET/PROFILE/deps/NAME`).
///
/// # Errors
/// The path of the test binary cannot be read.
pub fn target_dir() -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    exe.ancestors()
        .nth(3)
        .map(PathBuf::from)
        .ok_or_else(|| format!("no target directory above {}", exe.display()))
}

/// Finds a program on `PATH`.
///
/// # Errors
/// Names the program and the script that installs it.
pub fn which(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|p| p.is_file())
        .ok_or_else(|| format!("{program} is not installed: run scripts/test-deps"))
}

/// A command line, under `adverb run` or bare.
#[derive(Clone, Debug)]
pub struct Program {
    argv: Vec<String>,
    env: Vec<(String, String)>,
    /// Options of `adverb run`.
    options: Vec<String>,
    bare: bool,
}

impl Program {
    /// `name` with `args`, under `adverb run --`.
    pub fn new<S: AsRef<str>>(name: impl Into<String>, args: &[S]) -> Self {
        let mut argv = vec![name.into()];
        argv.extend(args.iter().map(|a| a.as_ref().to_string()));
        Self { argv, env: Vec::new(), options: Vec::new(), bare: false }
    }

    /// The program of a file, without arguments, under `adverb run --`.
    pub fn of_file(path: &Path) -> Self {
        Self::new::<&str>(path.display().to_string(), &[])
    }

    /// A command line, under `adverb run --`.
    pub fn of_line(line: &str) -> Self {
        let words = words(line);
        Self::new(&words[0], &words[1..])
    }

    /// The same with a port in place of a word.
    #[must_use]
    pub fn at_port(&self, word: &str, port: u16) -> Self {
        let mut program = self.clone();
        for arg in &mut program.argv {
            *arg = arg.replace(word, &port.to_string());
        }
        program
    }

    /// Runs without `adverb run`, on the system's own libraries.
    #[must_use]
    pub fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Gives `adverb run` an option.
    #[must_use]
    pub fn option(mut self, name: &str, value: impl Into<String>) -> Self {
        self.options.extend([name.to_string(), value.into()]);
        self
    }

    /// Gives `adverb run` an option without a value.
    #[must_use]
    pub fn flag(mut self, name: &str) -> Self {
        self.options.push(name.to_string());
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.argv.push(arg.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(self, args: &[&str]) -> Self {
        args.iter().fold(self, |program, arg| program.arg(*arg))
    }

    /// Sets an environment variable of the program.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_string(), value.into()));
        self
    }

    /// The command line as typed in a shell.
    pub fn line(&self) -> String {
        self.argv.join(" ")
    }

    /// Starts the program in a new process group.
    ///
    /// # Errors
    /// The program or the command under test is missing or cannot be started.
    pub fn start(&self) -> Result<Running, String> {
        let name = &self.argv[0];
        if !name.contains('/') {
            which(name)?;
        }
        let mut command = if self.bare {
            let mut c = Command::new(name);
            c.args(&self.argv[1..]);
            c
        } else {
            let mut c = Command::new(adverb()?);
            c.arg("run").args(&self.options).arg("--").args(&self.argv);
            c
        };
        for (k, v) in &self.env {
            command.env(k, v);
        }
        start(command, self.line())
    }

    /// Runs the program to the end or to the time limit.
    ///
    /// # Errors
    /// The program cannot be started. An exit status other than 0 is no error here.
    pub fn run(&self, limit: Duration) -> Result<Finished, String> {
        Ok(self.start()?.wait(limit))
    }

    /// Like [`run`](Self::run), and requires exit status 0.
    ///
    /// # Errors
    /// The program cannot be started, or fails; with its output.
    pub fn run_ok(&self, limit: Duration) -> Result<Finished, String> {
        self.run(limit)?.passed()
    }
}

/// The standard output of a command that must succeed; `what` names it.
///
/// # Errors
/// The messages of the command.
pub fn output_of(command: &mut Command, what: &str) -> Result<String, String> {
    let out = command.output().map_err(|e| format!("{what}: {e}: run scripts/test-deps"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    Err(format!("{what}:\n{}", String::from_utf8_lossy(&out.stderr).trim_end()))
}

/// Starts a prepared command in its own process group. The output is collected under the name
/// `line`.
///
/// # Errors
/// The command cannot be started.
pub fn start(mut command: Command, line: String) -> Result<Running, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|e| format!("cannot start {line}: {e}"))?;
    let output: Arc<Mutex<Output>> = Arc::default();
    let mut readers = Vec::new();
    if let Some(pipe) = child.stdout.take() {
        readers.push(collect(pipe, 0, &output));
    }
    if let Some(pipe) = child.stderr.take() {
        readers.push(collect(pipe, 1, &output));
    }
    Ok(Running { line, child, output, readers, since: Instant::now(), reaped: false })
}

/// The output of both streams. Each line stays whole, although a program may flush its buffer in
/// the middle of a line while the other stream writes.
#[derive(Default)]
struct Output {
    /// The complete lines of both streams, in the order of their ends.
    lines: Vec<u8>,
    /// The incomplete line of each stream.
    open: [Vec<u8>; 2],
}

impl Output {
    fn add(&mut self, stream: usize, bytes: &[u8]) {
        let open = &mut self.open[stream];
        match bytes.iter().rposition(|b| *b == b'\n') {
            Some(end) => {
                self.lines.append(open);
                self.lines.extend_from_slice(&bytes[..=end]);
                open.extend_from_slice(&bytes[end + 1..]);
            }
            None => open.extend_from_slice(bytes),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&[&self.lines[..], &self.open[0], &self.open[1]].concat())
            .into_owned()
    }
}

fn collect(
    mut pipe: impl Read + Send + 'static,
    stream: usize,
    to: &Arc<Mutex<Output>>,
) -> JoinHandle<()> {
    let output = Arc::clone(to);
    std::thread::spawn(move || {
        let mut buf = [0; 8192];
        while let Ok(n) = pipe.read(&mut buf) {
            if n == 0 {
                break;
            }
            output.lock().unwrap_or_else(|e| e.into_inner()).add(stream, &buf[..n]);
        }
    })
}

/// A running child. Dropping this value kills the process group.
pub struct Running {
    line: String,
    child: Child,
    output: Arc<Mutex<Output>>,
    readers: Vec<JoinHandle<()>>,
    since: Instant,
    reaped: bool,
}

impl Running {
    /// The pid of the child, which is also the process group's id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The output so far: both streams, line by line in the order of arrival, followed by the
    /// incomplete lines.
    pub fn text(&self) -> String {
        self.output.lock().unwrap_or_else(|e| e.into_inner()).text()
    }

    /// Whether the child has ended.
    pub fn ended(&mut self) -> bool {
        let ended = !matches!(self.child.try_wait(), Ok(None));
        self.reaped |= ended;
        ended
    }

    /// Waits until the output contains `needle`.
    ///
    /// # Errors
    /// The child ends or the time is over before.
    pub fn wait_for_text(&mut self, needle: &str, limit: Duration) -> Verdict {
        self.wait_until(&format!("print {needle:?}"), limit, |r| r.text().contains(needle))
    }

    /// Waits until a socket listens on the TCP port.
    ///
    /// # Errors
    /// The child ends or the time is over before.
    pub fn wait_for_listener(&mut self, port: u16, limit: Duration) -> Verdict {
        self.wait_until(&format!("listen on TCP port {port}"), limit, |_| listens(port))
    }

    /// Waits until a condition holds; `what` describes the condition.
    ///
    /// # Errors
    /// The child ends or the time is over before.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> Verdict {
        let end = Instant::now() + limit;
        loop {
            if done(self) {
                return Ok(());
            }
            let ended = self.ended();
            // The last output may have arrived between the two checks.
            if ended && !done(self) {
                self.take_last_words();
                if done(self) {
                    return Ok(());
                }
                return Err(format!("{}: ended before it did {what}:\n{}", self.line, self.text()));
            }
            if Instant::now() >= end {
                return Err(format!(
                    "{}: did not {what} within {limit:?}:\n{}",
                    self.line,
                    self.text()
                ));
            }
            std::thread::sleep(TICK);
        }
    }

    /// Waits until both streams of an ended child are read to their ends. A grandchild that is
    /// still alive would keep the streams open forever.
    fn take_last_words(&self) {
        let since = Instant::now();
        while self.readers.iter().any(|r| !r.is_finished()) {
            let waited = since.elapsed();
            if waited >= LAST_WORDS[1] || waited >= LAST_WORDS[0] && group_exists(self.pid()) {
                return;
            }
            std::thread::sleep(TICK);
        }
    }

    /// Sends SIGKILL to the child and to all processes left in the group.
    pub fn kill_hard(&mut self) {
        if !self.reaped || group_exists(self.pid()) {
            // The group belongs to this test: its leader is this process's child, started with
            // `process_group(0)`.
            let _ = Command::new("sh")
                .args(["-c", &format!("kill -KILL -- -{}", self.child.id())])
                .stderr(Stdio::null())
                .status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.reaped = true;
    }

    /// Waits for the end of the child, or kills the child at the time limit.
    pub fn wait(mut self, limit: Duration) -> Finished {
        let end = self.since + limit;
        let mut stuck = String::new();
        let mut timed_out = false;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => {
                    self.reaped = true;
                    break Some(status);
                }
                Ok(None) if Instant::now() < end => std::thread::sleep(TICK),
                _ => {
                    timed_out = true;
                    stuck = thread_states(self.pid());
                    self.kill_hard();
                    break None;
                }
            }
        };
        let elapsed = self.since.elapsed();
        let pid = self.pid();
        self.take_last_words();
        if group_exists(pid) {
            self.kill_hard();
        }
        let mut text = self.text();
        if timed_out {
            text.push_str(&format!("\n(killed after {elapsed:?}; threads then:\n{stuck})\n"));
        }
        Finished { line: self.line.clone(), status, text, elapsed, timed_out }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended() || group_exists(self.pid()) {
            self.kill_hard();
        }
    }
}

/// Whether any process of the group is left, not counting zombies.
pub fn group_exists(pgid: u32) -> bool {
    let Ok(dir) = std::fs::read_dir("/proc") else { return false };
    dir.flatten().any(|entry| {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { return false };
        // pid (comm) state ppid pgrp
        let Some((_, rest)) = stat.rsplit_once(") ") else { return false };
        let mut fields = rest.split(' ');
        let state = fields.next();
        state != Some("Z") && fields.nth(1) == Some(pgid.to_string().as_str())
    })
}

/// Name, state and kernel wait channel of each thread of the group, for the report of a hang.
fn thread_states(pgid: u32) -> String {
    let script = format!(
        "for p in $(ps -eo pid=,pgid= | awk '$2=={pgid}{{print $1}}'); do for t in /proc/$p/task/*; do \
         echo \"  $p $(cat $t/comm) $(cut -d' ' -f3 $t/stat) $(cat $t/wchan) $(cut -d' ' -f1 $t/syscall)\"; done; done"
    );
    output_of(Command::new("sh").args(["-c", &script]), "threads").unwrap_or_else(|why| why)
}

/// A TCP port that is free at the moment.
///
/// # Errors
/// No socket can be bound.
pub fn free_port() -> Result<u16, String> {
    // Bound on all addresses, as the programs under test do.
    let listener = std::net::TcpListener::bind(("::", 0))
        .or_else(|_| std::net::TcpListener::bind(("0.0.0.0", 0)))
        .map_err(|e| format!("no free TCP port: {e}"))?;
    Ok(listener.local_addr().map_err(|e| e.to_string())?.port())
}

/// Whether a socket listens on the TCP port. The answer comes from `/proc`, so that the listener is
/// not disturbed.
pub fn listens(port: u16) -> bool {
    let suffix = format!(":{port:04X}");
    ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        std::fs::read_to_string(table).unwrap_or_default().lines().any(|line| {
            let mut f = line.split_whitespace();
            let local = f.nth(1).unwrap_or_default();
            let state = f.nth(1).unwrap_or_default();
            local.ends_with(&suffix) && state == "0A"
        })
    })
}

/// Splits a line into the arguments of a program.
pub fn words<S: AsRef<OsStr> + ToString>(line: S) -> Vec<String> {
    line.to_string().split_whitespace().map(str::to_string).collect()
}

#[cfg(test)]
mod tests;
