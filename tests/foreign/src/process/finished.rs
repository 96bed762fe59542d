//! The end of a child, and its output.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use crate::Verdict;

/// Exit status and output of a child.
#[derive(Clone, Debug)]
pub struct Finished {
    /// The command line.
    pub line: String,
    /// `None` if the child was killed at the time limit.
    pub status: Option<ExitStatus>,
    /// The output of both streams.
    pub text: String,
    /// Time from start to end.
    pub elapsed: Duration,
    /// Whether the child was killed at the time limit.
    pub timed_out: bool,
}

impl Finished {
    /// Whether the child ended by itself with status 0.
    pub fn ok(&self) -> bool {
        self.status.is_some_and(|s| s.success())
    }

    /// The exit code, if the child ended by itself.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|s| s.code())
    }

    /// Fails with the output unless the exit status is 0.
    ///
    /// # Errors
    /// The command line, the kind of end, and the output.
    pub fn require_ok(&self) -> Verdict {
        self.require(self.ok())
    }

    /// A counter from the log line of a process at its end (`--log info`).
    pub fn counter(&self, name: &str) -> u64 {
        let line = self.text.lines().find(|l| l.contains("info: counters:")).unwrap_or_default();
        let value =
            line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        value.and_then(|v| v.parse().ok()).unwrap_or(0)
    }

    /// The same, if the exit status is 0.
    ///
    /// # Errors
    /// The command line, the kind of end, and the output.
    pub fn passed(self) -> Result<Self, String> {
        self.require_ok().map(|()| self)
    }

    /// Fails with the output unless the condition holds.
    ///
    /// # Errors
    /// The command line, the kind of end, and the output.
    pub fn require(&self, holds: bool) -> Verdict {
        if holds { Ok(()) } else { Err(self.describe()) }
    }

    /// Fails with the output unless it contains all these words.
    ///
    /// # Errors
    /// The first missing words, and the output.
    pub fn require_words(&self, words: &[&str]) -> Verdict {
        match words.iter().find(|words| !self.text.contains(**words)) {
            Some(missing) => Err(format!("no {missing:?}: {}", self.describe())),
            None => Ok(()),
        }
    }

    /// The command line, the kind of end, and the output.
    pub fn describe(&self) -> String {
        let how = match self.status {
            None => format!("did not end within its time and was killed after {:?}", self.elapsed),
            Some(s) => match (s.code(), s.signal()) {
                (Some(c), _) => format!("exit status {c}"),
                (None, Some(sig)) => format!("died of signal {sig}"),
                _ => "ended strangely".to_string(),
            },
        };
        format!("$ {}\n{}\n[{how}]", self.line, self.text.trim_end())
    }
}

/// The lines of numbers in perftest's output: columns, of which the first two are size and
/// iterations.
pub fn columns(text: &str) -> Vec<Vec<f64>> {
    text.lines()
        .filter(|l| l.starts_with(' '))
        .filter_map(|l| l.split_whitespace().map(|w| w.parse().ok()).collect::<Option<Vec<f64>>>())
        .filter(|r| r.len() >= 4)
        .collect()
}
