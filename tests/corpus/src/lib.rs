//! Small wrong verbs programs, each with its right twin.
//!
//! Each is one C file of `c/`. Built with its flag it has one mistake that users of verbs make in
//! life: it usually works and fails seldom. Built without, it is right and must pass always.
//! [`MISTAKES`] says of each what it is, who should find it, and which line and words a report must
//! name. What searches for mistakes or checks programs is judged by it: every wrong program found,
//! no right one accused.
#![forbid(unsafe_code)]

pub mod build;
mod table;

pub use table::MISTAKES;

/// Who should name the mistake, from the mildest means to the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finder {
    /// The log of a run in which it fails.
    Log,
    /// A checker that watches a run in which it works.
    Check,
    /// A search that makes it happen, by moments and failures that the rules allow.
    Hunt,
}

/// One wrong program.
#[derive(Clone, Copy, Debug)]
pub struct Mistake {
    /// The C file in `c/`, without its ending.
    pub program: &'static str,
    /// What is defined to make it wrong.
    pub define: &'static str,
    /// The kind of mistake, in a few words.
    pub kind: &'static str,
    /// The public threads it is cut from, by project and number; empty for a kind that has none.
    pub threads: &'static [&'static str],
    /// Who should name it; any of them will do.
    pub finders: &'static [Finder],
    /// A piece of the line that a report must name; it stands once in the file.
    pub line: &'static str,
    /// Words that a report must have, one of them at least.
    pub words: &'static [&'static str],
}

impl Mistake {
    /// The name of the wrong program: that of its file, and of its variant if it has several.
    #[must_use]
    pub fn name(&self) -> String {
        match self.define {
            "WRONG" => self.program.to_string(),
            variant => format!("{}-{}", self.program, variant.to_lowercase().replace('_', "-")),
        }
    }

    /// The number of the line that a report must name.
    ///
    /// # Errors
    /// When the file cannot be read, or [`line`](Self::line) does not stand in it exactly once.
    pub fn line_number(&self) -> Result<usize, String> {
        let path = build::source(self.program);
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let mut found = text.lines().zip(1..).filter(|(line, _)| line.contains(self.line)).map(|(_, n)| n);
        match (found.next(), found.next()) {
            (Some(n), None) => Ok(n),
            (first, _) => {
                let times = if first.is_none() { "does not stand" } else { "stands more than once" };
                Err(format!("{:?} {times} in {}", self.line, path.display()))
            }
        }
    }
}
