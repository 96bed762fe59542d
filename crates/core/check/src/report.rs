//! Reports, each once.
use crate::{Code, Weight};
use std::collections::HashSet;

/// An address in the program's code; 0 means unknown. The bits above an address may hold a number
/// of the caller of this crate for the calls that led there.
pub type CodeAddress = usize;

/// Bits of an address in a program's code.
const ADDRESS: u32 = 48;

/// An address with a number for the calls that led there. A number that finds no room is 0.
#[must_use]
pub fn with_way(address: CodeAddress, way: usize) -> CodeAddress {
    let room = way < 1 << (usize::BITS - ADDRESS) && address >> ADDRESS == 0;
    if room { address | way << ADDRESS } else { address }
}

/// The address alone, and the number of [`with_way`].
#[must_use]
pub fn without_way(address: CodeAddress) -> (CodeAddress, usize) {
    (address & ((1 << ADDRESS) - 1), address >> ADDRESS)
}

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Kind of the mistake.
    pub code: Code,
    /// A sentence that describes the mistake.
    pub text: String,
    /// Events and their places in the program. The first place is the call with the mistake.
    pub places: Vec<(&'static str, CodeAddress)>,
    /// The program has not failed: the report says what the program does or waits for.
    pub state: bool,
}

/// Reports not returned yet, and a record of all earlier reports.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    /// With the report's `state`.
    told: HashSet<(Code, CodeAddress, bool)>,
    /// The reports are about a program that has not failed.
    pub(crate) state: bool,
    waiting: Vec<Report>,
    /// The places of mistakes.
    named: HashSet<CodeAddress>,
}

impl Reporter {
    /// Adds a report, unless the same mistake was already reported for this place.
    pub(crate) fn say(
        &mut self,
        code: Code,
        places: &[(&'static str, CodeAddress)],
        text: impl FnOnce() -> String,
    ) {
        let first = places.first().map_or(0, |(_, place)| without_way(*place).0);
        let state = self.state;
        if !self.told.contains(&(code, first, false)) && self.told.insert((code, first, state)) {
            let places: Vec<_> = places.iter().copied().filter(|(_, at)| *at != 0).collect();
            if code.weight() == Weight::Mistake {
                self.named.extend(places.iter().map(|(_, place)| without_way(*place).0));
            }
            self.waiting.push(Report { code, text: text(), places, state });
        }
    }

    /// Causes and states may be reported again: the process is examined another time.
    pub(crate) fn examine_again(&mut self) {
        self.told.retain(|(code, ..)| !matches!(code.weight(), Weight::Cause | Weight::State));
    }

    /// Has a report that is waiting a cause or a mistake?
    pub(crate) fn has_cause(&self) -> bool {
        self.waiting.iter().any(|report| report.code.weight() < Weight::State)
    }

    /// Is this a place of a mistake that was reported?
    pub(crate) fn has_named(&self, place: CodeAddress) -> bool {
        self.named.contains(&without_way(place).0)
    }

    pub(crate) fn take(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.waiting)
    }
}

/// A number with its noun.
pub(crate) fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}
