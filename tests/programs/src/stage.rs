//! A separate network namespace for a program and its children: a loopback interface, a cable on
//! request, no neighbours.

use std::path::{Path, PathBuf};
use std::time::Duration;

use adverb_foreign::hosts::namespaces;
use adverb_foreign::process::{self, Finished, Running};

/// The device.
pub const DEVICE: &str = "adverb0";
/// The device of the cable and its address, for programs that refuse a loopback interface.
pub const CABLE: (&str, &str) = (DEVICE, "192.0.2.1");
/// Creates the cable, and waits until the link is up.
const LAY: &str = "ip link add cable type veth peer name end && ip addr add 192.0.2.1/24 dev cable
    for at in cable end; do ip link set $at addrgenmode none && ip link set $at up; done
    n=0; until ip link show cable | grep -q 'state UP' || [ $n -gt 100 ]; do n=$((n + 1)); sleep 0.1; done";
/// The paths of packets within a host (`ADVERB_PATH`).
pub const PATHS: [&str; 2] = ["local", "wire"];

/// A command line in its own namespace, under `adverb run`.
#[derive(Clone, Debug)]
pub struct Stage {
    env: Vec<(String, String)>,
    dir: Option<PathBuf>,
    bare: bool,
    cable: bool,
}

impl Stage {
    /// Packets take the given path, `local` or `wire`.
    pub fn new(path: &str) -> Self {
        Self {
            env: vec![("ADVERB_PATH".into(), path.into())],
            dir: None,
            bare: false,
            cable: false,
        }
    }

    /// Runs without `adverb run`: for builds, or for scripts that call `adverb run` themselves.
    pub fn bare() -> Self {
        Self { env: Vec::new(), dir: None, bare: true, cable: false }
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Creates a cable with the address [`CABLE`] at one end.
    #[must_use]
    pub fn with_cable(mut self) -> Self {
        self.cable = true;
        self
    }

    /// Runs in this directory.
    #[must_use]
    pub fn dir(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_path_buf());
        self
    }

    /// Starts the command line.
    ///
    /// # Errors
    /// The command under test or `unshare` is missing.
    pub fn start<S: AsRef<str>>(&self, argv: &[S]) -> Result<Running, String> {
        let argv: Vec<&str> = argv.iter().map(AsRef::as_ref).collect();
        let lay = if self.cable { LAY } else { "" };
        let steps = format!("ip link set lo up\n{lay}\nexec \"$@\"");
        let mut command = namespaces(&steps);
        if !self.bare {
            command.arg(process::adverb()?).args(["run", "--"]);
        }
        command.args(&argv).envs(self.env.iter().map(|(k, v)| (k, v)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        let env: String = self.env.iter().map(|(k, v)| format!("{k}={v} ")).collect();
        process::start(command, format!("{env}{}", argv.join(" ")))
    }

    /// Runs the command line to the end or the limit.
    ///
    /// # Errors
    /// The command cannot be started. The caller judges the exit status.
    pub fn run<S: AsRef<str>>(&self, argv: &[S], limit: Duration) -> Result<Finished, String> {
        Ok(self.start(argv)?.wait(limit))
    }

    /// Like [`run`](Self::run), and requires exit status 0.
    ///
    /// # Errors
    /// The kind of end, with the output.
    pub fn run_ok<S: AsRef<str>>(&self, argv: &[S], limit: Duration) -> Result<Finished, String> {
        self.run(argv, limit)?.passed()
    }
}
