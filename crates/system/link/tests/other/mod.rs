//! Processes of other users: this test binary, started again. The test `the_other` performs the
//! role in `ROLE`.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

pub const ROLE: &str = "ADVERB_LINK_TEST_ROLE";

/// A process of another user.
pub struct Other {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    exe: PathBuf,
}

impl Other {
    /// Starts a process, which prints a line when ready.
    pub fn start(uid: u32, role: &str) -> Other {
        Other::start_as(uid, role, 0o755)
    }

    /// As [`Other::start`], for an executable with these rights.
    pub fn start_as(uid: u32, role: &str, mode: u32) -> Other {
        assert!(
            nix::unistd::geteuid().is_root(),
            "this test becomes another user, which only root can: run it as root (`sudo -E cargo test -p adverb-link`)"
        );
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // A copy, because the other user may not have access to the build tree.
        let name =
            format!("adverb-trust-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let exe = std::env::temp_dir().join(name);
        std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
        std::fs::set_permissions(&exe, std::fs::Permissions::from_mode(mode)).unwrap();
        let mut command = Command::new(&exe);
        command
            .args(["--exact", "the_other", "--ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, role);
        command.uid(uid).gid(uid).current_dir("/").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = loop {
            match command.spawn() {
                // Another thread is forking while the copy is open for writing.
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                    std::thread::yield_now()
                }
                child => break child.unwrap(),
            }
        };
        let output = BufReader::new(child.stdout.take().unwrap());
        Other { input: child.stdin.take(), child, output, exe }
    }

    pub fn hear(&mut self) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.split_once("SAYS ") {
                return said.trim_end().to_owned();
            }
            line.clear();
        }
        panic!("it ended without a word");
    }

    pub fn ask(&mut self, what: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{what}").unwrap();
        self.hear()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.exe);
    }
}

pub fn say(what: impl std::fmt::Display) {
    println!("SAYS {what}");
    std::io::stdout().flush().unwrap();
}

/// The next request of the test; `None` at the end.
pub fn asked() -> Option<String> {
    let mut line = String::new();
    (std::io::stdin().read_line(&mut line).unwrap() > 0).then(|| line.trim_end().to_owned())
}
