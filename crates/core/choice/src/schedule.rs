//! Schedules: the choices of a run, and their text form.
use crate::{Choice, ChoiceEntry, Point, draw};
use std::fmt;
use std::str::FromStr;

/// The first line of a schedule's text.
const HEAD: &str = "adverb-schedule 1";
/// Denominator of `rate`.
const OF: u64 = 10_000;

/// The choices of a run: explicit entries first, then the draw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Seed of the draw.
    pub seed: u64,
    /// The draw makes a choice at this many of ten thousand points.
    pub rate: u16,
    /// Explicit choices; the first matching entry applies.
    pub entries: Vec<ChoiceEntry>,
}

impl Schedule {
    /// Choices by the seed only. The rate depends on the seed, because few changes find most
    /// mistakes and some mistakes need many.
    #[must_use]
    pub fn random(seed: u64) -> Self {
        let rate = [100, 400, 1500, 5000][(seed % 4) as usize];
        Schedule { seed, rate, entries: Vec::new() }
    }

    /// These choices only.
    #[must_use]
    pub fn of(entries: Vec<ChoiceEntry>) -> Self {
        Schedule { entries, ..Schedule::default() }
    }

    /// Does this schedule never choose?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rate == 0 && self.entries.is_empty()
    }

    /// The choice at a point.
    #[must_use]
    pub fn choice(&self, point: &Point) -> Option<Choice> {
        if let Some(entry) = self.entries.iter().find(|e| e.has(point)) {
            return Some(entry.choice);
        }
        if self.rate == 0 {
            return None;
        }
        let draw = draw(self.seed, point);
        let choices = point.site.call.choices();
        (draw % OF < u64::from(self.rate))
            .then(|| choices[(draw / OF % choices.len() as u64) as usize])
            .filter(|choice| !choice.may_end())
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        if self.rate > 0 {
            writeln!(f, "seed {} rate {}", self.seed, self.rate)?;
        }
        self.entries.iter().try_for_each(|e| writeln!(f, "{e}"))
    }
}

/// The text of a schedule, or a seed alone. Lines that begin with `#` are comments.
impl FromStr for Schedule {
    type Err = Bad;
    fn from_str(text: &str) -> Result<Self, Bad> {
        if let Ok(seed) = text.trim().parse() {
            return Ok(Schedule::random(seed));
        }
        let mut lines =
            text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#'));
        let first = lines.next().unwrap_or_default();
        if first != HEAD {
            return Err(Bad::new(first, "a schedule begins with another line"));
        }
        let mut schedule = Schedule::default();
        for line in lines {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                ["seed", seed, "rate", rate] => {
                    schedule.seed =
                        seed.parse().map_err(|_| Bad::new(line, "the seed is a number"))?;
                    let rate: Option<u16> = rate.parse().ok().filter(|r| u64::from(*r) <= OF);
                    schedule.rate = rate.ok_or_else(|| Bad::new(line, "the rate is 0 to 10000"))?;
                }
                _ => schedule.entries.push(line.parse()?),
            }
        }
        Ok(schedule)
    }
}

/// Text that is not a valid schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bad {
    text: String,
    why: &'static str,
}

impl Bad {
    pub(crate) fn new(text: &str, why: &'static str) -> Self {
        Bad { text: text.chars().take(80).collect(), why }
    }
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.text, self.why)
    }
}

impl std::error::Error for Bad {}
