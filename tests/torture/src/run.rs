//! A run of a program under `adverb run`, with an allocator and a path, judged by the exit status.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use adverb_foreign::process::{Running, start};

use crate::allocators::Allocator;

/// Appends a library to the preloaded ones, in the program and not in the starting command.
const PRELOAD: &str = r#"LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$0" exec "$@""#;

/// A run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Name in reports.
    pub name: String,
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// Allocator of the program.
    pub allocator: Allocator,
    /// `ADVERB_PATH`, or none for a program without Adverb.
    pub path: Option<&'static str>,
    /// Further environment variables.
    pub env: Vec<(String, String)>,
    /// Time limit; a longer run hangs.
    pub limit: Duration,
}

impl Run {
    fn command(&self, adverb: &Path) -> (Command, String) {
        let mut argv: Vec<String> = Vec::new();
        if self.path.is_some() {
            argv.extend([adverb.display().to_string(), "run".to_string(), "--".to_string()]);
        }
        if let Some(library) = &self.allocator.library {
            argv.extend(["sh", "-c", PRELOAD].map(str::to_string));
            argv.push(library.display().to_string());
        }
        argv.extend(self.argv.iter().cloned());
        let mut env = self.env.clone();
        env.extend(self.path.map(|p| ("ADVERB_PATH".to_string(), p.to_string())));
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]).envs(env.iter().cloned());
        // The command line as typed in a shell.
        let quoted =
            argv.iter().map(|a| if a.contains(' ') { format!("'{a}'") } else { a.clone() });
        let line: Vec<String> = env.iter().map(|(k, v)| format!("{k}={v}")).chain(quoted).collect();
        (command, line.join(" "))
    }

    /// Runs the program to the end. A hanging program is examined with gdb and killed.
    ///
    /// # Errors
    /// The command line, the kind of end, and the output.
    pub fn judge(&self, adverb: &Path) -> Result<(), String> {
        let (command, line) = self.command(adverb);
        let mut running = start(command, line)?;
        let end = Instant::now() + self.limit;
        while !running.ended() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        let stacks = if running.ended() { String::new() } else { examine(&mut running) };
        let hung = !stacks.is_empty();
        let out = running.wait(self.limit + Duration::from_secs(20));
        if out.ok() && !hung && out.text.lines().any(|l| l.starts_with("ok ")) {
            return Ok(());
        }
        Err(format!("{}{stacks}", out.describe()))
    }
}

/// The stacks of a hanging program. Afterwards the program prints the last steps and ends.
fn examine(running: &mut Running) -> String {
    let pid = running.pid().to_string();
    let seen = Command::new("timeout")
        .args(["30", "gdb", "-p", &pid, "-batch", "-ex", "thread apply all bt 16"])
        .output()
        .map_or_else(
            |e| format!("gdb: {e}"),
            |out| String::from_utf8_lossy(&out.stdout).into_owned(),
        );
    // SIGQUIT first: the program then prints its steps.
    let asked = Command::new("kill").args(["-QUIT", &pid]).status();
    let end = Instant::now() + Duration::from_secs(3);
    while asked.is_ok() && !running.ended() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    let stacks: Vec<&str> =
        seen.lines().filter(|l| l.starts_with("Thread ") || l.starts_with('#')).collect();
    running.kill_hard();
    format!("\n[it did not end by itself; its stacks:]\n{}", stacks.join("\n"))
}

/// The command under test: `$ADVERB`, or `adverb` beside this program.
///
/// # Errors
/// Names the missing file and how to build it.
pub fn adverb() -> Result<PathBuf, String> {
    let path = match std::env::var_os("ADVERB") {
        Some(path) => PathBuf::from(path),
        None => {
            std::env::current_exe().map_err(|e| format!("own path: {e}"))?.with_file_name("adverb")
        }
    };
    if path.is_file() {
        return Ok(path);
    }
    Err(format!(
        "{} is missing: run `make` first, or set ADVERB to the command to test",
        path.display()
    ))
}
