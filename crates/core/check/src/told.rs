//! A report as a line of text, for who puts those of several processes together.
use crate::Code;
use std::fmt;
use std::str::FromStr;

/// A report of a process, with its places in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// The process.
    pub process: u32,
    /// The kind of mistake.
    pub code: Code,
    /// A sentence.
    pub text: String,
    /// What happened where in the program; the first is the call that matters.
    pub places: Vec<(String, String)>,
}

/// One line, whose words are parted by tabs.
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
