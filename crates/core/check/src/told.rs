//! A report as a line of text, for a process that collects the reports of several processes.
use crate::Code;
use std::fmt;
use std::str::FromStr;

/// A report of a process, with its places as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Process id.
    pub process: u32,
    /// The kind of mistake.
    pub code: Code,
    /// A sentence that describes the mistake.
    pub text: String,
    /// Events and their places in the program. The first place is the call with the mistake.
    pub places: Vec<(String, String)>,
    /// The program has not failed: the report says what the program does or waits for.
    pub state: bool,
}

/// Stands before the code of a report with `state`.
const STATE: &str = "state ";

/// One line, with fields separated by tabs.
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |text: &str| text.replace(char::is_control, " ");
        let state = if self.state { STATE } else { "" };
        write!(f, "{}\t{state}{}\t{}", self.process, self.code, plain(&self.text))?;
        self.places.iter().try_for_each(|(what, at)| write!(f, "\t{}\t{}", plain(what), plain(at)))
    }
}

impl FromStr for Told {
    type Err = ();
    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split('\t');
        let mut next = || words.next().ok_or(());
        let process = next()?.parse().map_err(drop)?;
        let code = next()?;
        let (state, code) = code.strip_prefix(STATE).map_or((false, code), |code| (true, code));
        let code = Code::of(code).ok_or(())?;
        let text = next()?.to_owned();
        let mut places = Vec::new();
        while let Some(what) = words.next() {
            places.push((what.to_owned(), words.next().ok_or(())?.to_owned()));
        }
        Ok(Told { process, code, text, places, state })
    }
}
