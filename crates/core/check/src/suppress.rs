//! Suppressions of reports: a file with one line per suppression.
//!
//! A line is a code or `*`, and optionally a pattern. The pattern is matched with the text of the
//! report and its places, and `*` matches any text: `buffer-changed *ucp_*`. Empty lines and lines
//! that begin with `#` are ignored.
use crate::Code;
use std::fmt;
use std::str::FromStr;

/// The suppressed reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions(Vec<(Option<Code>, String)>);

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    line: usize,
    word: String,
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {:?} is no code of a report: ", self.line, self.word)?;
        let names: Vec<_> = Code::ALL.iter().map(|code| code.name()).collect();
        write!(f, "{} and * are possible", names.join(", "))
    }
}

impl std::error::Error for Bad {}

impl FromStr for Suppressions {
    type Err = Bad;
    fn from_str(text: &str) -> Result<Self, Bad> {
        let lines = text.lines().map(str::trim).enumerate();
        let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let read = |(n, line): (usize, &str)| {
            let (word, pattern) = line.split_once(char::is_whitespace).unwrap_or((line, "*"));
            let code = match Code::of(word) {
                None if word != "*" => return Err(Bad { line: n + 1, word: word.into() }),
                code => code,
            };
            Ok((code, pattern.trim().to_string()))
        };
        said.map(read).collect::<Result<_, _>>().map(Suppressions)
    }
}

impl Suppressions {
    /// Is a report with this text suppressed?
    #[must_use]
    pub fn has(&self, code: Code, words: &str) -> bool {
        self.0.iter().any(|(of, pattern)| of.is_none_or(|of| of == code) && matches(pattern, words))
    }
}

/// Does the text contain the pattern, with any text in place of each `*`?
fn matches(pattern: &str, text: &str) -> bool {
    let mut rest = text;
    pattern.split('*').all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}
