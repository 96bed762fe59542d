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
}

/// One line, with fields separated by tabs.
impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |text: &str| text.replace(char::is_control, " ");
        write!(f, "{}\t{}\t{}", self.process, self.code, plain(&self.text))?;
        self.places.iter().try_for_each(|(what, at)| write!(f, "\t{}\t{}", plain(what), plain(at)))
    }
}

impl FromStr for Told {
    type Err = ();
    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split('\t');
        let mut next = || words.next().ok_or(());
        let process = next()?.parse().map_err(drop)?;
        let code = Code::of(next()?).ok_or(())?;
        let text = next()?.to_owned();
        let mut places = Vec::new();
        while let Some(what) = words.next() {
            places.push((what.to_owned(), words.next().ok_or(())?.to_owned()));
        }
        Ok(Told { process, code, text, places })
    }
}
