//! Small wrong verbs programs, each with a right twin.
//!
//! Each program is one C file of `c/`. Built with its flag the program has one mistake from real
//! use of verbs, and usually works in spite of this. Built without the flag the program is right
//! and must always pass. [`MISTAKES`] lists for each program the mistake, the tools that should
//! find it, and the line and words of a right report. The corpus judges every tool that searches
//! for mistakes or checks programs: each wrong program must be found, and no right one accused.
#![forbid(unsafe_code)]

pub mod build;
mod table;

use std::collections::BTreeSet;
use std::time::Duration;

use adverb_foreign::cases::on_rig;
use adverb_foreign::process::{Finished, Program};
pub use table::MISTAKES;

/// Time limit of a right program, in seconds. It may meet a slow machine.
pub const RIGHT_SECONDS: u64 = 40;
/// Margin beyond all other times.
const GRACE: u64 = 20;

/// The names of all files in `c/`.
#[must_use]
pub fn programs() -> BTreeSet<&'static str> {
    MISTAKES.iter().map(|m| m.program).collect()
}

/// Runs a program of the corpus with a time limit of its own, and a hunt or a replay of it for
/// `hunted` seconds.
///
/// # Errors
/// The program cannot be started.
pub fn run(program: Program, seconds: u64, hunted: u64) -> Result<Finished, String> {
    let program = on_rig(program)?.env("CORPUS_SECONDS", seconds.to_string());
    program.run(Duration::from_secs(seconds + hunted + GRACE))
}

/// Whether a text names this line of a file, and not a line whose number begins with the same
/// digits.
#[must_use]
pub fn names_line(text: &str, line: &str) -> bool {
    let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
    text.match_indices(line).any(|(at, _)| ends(&text[at + line.len()..]))
}

/// The tools that should name the mistake, from the mildest to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// The log of a failing run.
    Log,
    /// A checker that watches a working run.
    Check,
    /// A search with timing and failures permitted by the rules.
    Hunt,
}

/// A wrong program.
#[derive(Clone, Copy, Debug)]
pub struct Mistake {
    /// The C file in `c/`, without the extension.
    pub program: &'static str,
    /// The macro for the wrong program.
    pub define: &'static str,
    /// The kind of mistake, in a few words.
    pub kind: &'static str,
    /// The public issue threads behind the program, by project and number; empty if there are none.
    pub threads: &'static [&'static str],
    /// The tools that should name the mistake; any of them is enough.
    pub finders: &'static [Finder],
    /// A part of the line to be named in a report. This part occurs exactly once in the file.
    pub line: &'static str,
    /// Words of a report, of which at least one must occur.
    pub words: &'static [&'static str],
    /// A hunt names another line of the file: the calls do not show the line of the mistake.
    pub elsewhere: bool,
    /// The mistake is a risk: a hunt mentions the mistake at its end, and ends with status 0.
    pub risk: bool,
    /// No choice of a hunt shows the mistake yet.
    pub open: bool,
}

impl Mistake {
    /// The name of the wrong program: the name of its file, with the variant if there are several.
    #[must_use]
    pub fn name(&self) -> String {
        match self.define {
            "WRONG" => self.program.to_string(),
            variant => format!("{}-{}", self.program, variant.to_lowercase().replace('_', "-")),
        }
    }

    /// The number of the line to be named in a report.
    ///
    /// # Errors
    /// The file cannot be read, or does not contain [`line`](Self::line) exactly once.
    pub fn line_number(&self) -> Result<usize, String> {
        let path = build::source(self.program);
        let text =
            std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut found =
            text.lines().zip(1..).filter(|(line, _)| line.contains(self.line)).map(|(_, n)| n);
        match (found.next(), found.next()) {
            (Some(n), None) => Ok(n),
            (first, _) => {
                let times =
                    if first.is_none() { "does not stand" } else { "stands more than once" };
                Err(format!("{:?} {times} in {}", self.line, path.display()))
            }
        }
    }
}
