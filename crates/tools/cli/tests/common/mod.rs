//! The command as a user calls it, and directories for what the tests make.
#![allow(dead_code, reason = "each test file uses its part")]
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program without the variables of the device.
pub fn program(name: &str) -> Command {
    let mut command = Command::new(name);
    for name in ["ADVERB_LOG", "LD_PRELOAD", "LD_LIBRARY_PATH"] {
        command.env_remove(name);
    }
    command
}

pub fn command(args: &[&str]) -> Command {
    let mut command = program(env!("CARGO_BIN_EXE_adverb"));
    command.args(args);
    command
}

pub fn adverb(args: &[&str]) -> Output {
    command(args).output().expect("the command starts")
}

/// A shell in a network namespace of its own, with ADVERB as the command.
pub fn apart(script: &str) -> Output {
    let mut command = program("unshare");
    let root = nix::unistd::Uid::effective().is_root();
    command.args([if root { "-n" } else { "-rn" }, "sh", "-c", script]);
    command.env("ADVERB", env!("CARGO_BIN_EXE_adverb")).output().expect("unshare starts")
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Standard output and standard error of a command that has ended with this status.
pub fn said(output: &Output, status: i32) -> String {
    let said = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    said
}

/// An empty directory.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        Scratch::within(&std::env::temp_dir(), name)
    }

    pub fn within(place: &Path, name: &str) -> Scratch {
        let path = place.join(format!("adverb-{}-{name}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Scratch(path)
    }

    pub fn str(&self) -> &str {
        self.0.to_str().unwrap()
    }

    pub fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.join(file)).unwrap_or_default()
    }

    pub fn write(&self, file: &str, text: &str) {
        std::fs::write(self.join(file), text).unwrap();
    }

    /// Runs a shell script in the directory.
    pub fn shell(&self, script: &str) {
        let made = Command::new("sh").current_dir(self).args(["-e", "-c", script]).status();
        assert!(made.expect("sh starts").success(), "run scripts/test-deps");
    }
}

impl Deref for Scratch {
    type Target = Path;
    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        self
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self);
    }
}
