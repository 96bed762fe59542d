//! What is said, once.
use crate::Code;
use std::collections::HashSet;

/// An address in the program's code; 0 is not known.
pub type Place = usize;

/// A mistake that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its kind.
    pub code: Code,
    /// A sentence.
    pub text: String,
    /// What happened where in the program; the first is the call that matters.
    pub places: Vec<(&'static str, Place)>,
}

/// Reports that wait to be told, and what was told before.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    told: HashSet<(Code, Place)>,
    waiting: Vec<Report>,
}

impl Reporter {
    /// Reports, unless the same was reported of this place.
    pub(crate) fn say(
        &mut self,
        code: Code,
        places: &[(&'static str, Place)],
        text: impl FnOnce() -> String,
    ) {
        let first = places.first().map_or(0, |(_, place)| *place);
        if self.told.insert((code, first)) {
            let places = places.iter().copied().filter(|(_, place)| *place != 0).collect();
            self.waiting.push(Report { code, text: text(), places });
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.waiting)
    }
}

/// A number with its noun.
pub(crate) fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}
