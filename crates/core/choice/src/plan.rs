//! The order in which schedules are tried: single choices, then pairs, then seeds.
use crate::{Call, Choice, ChoiceEntry, Schedule, Site, Which, mix};

/// Choices, in the order of how many mistakes they find.
const ORDER: [(Call, Choice); 19] = [
    (Call::Arm, Choice::Before),
    (Call::Poll, Choice::After),
    (Call::Poll, Choice::Hold),
    (Call::Post, Choice::Late),
    (Call::Post, Choice::TailFirst),
    (Call::Post, Choice::Full),
    (Call::Error, Choice::Garbage),
    (Call::Event, Choice::Before),
    (Call::Async, Choice::Before),
    (Call::Connection, Choice::Before),
    (Call::Receive, Choice::Before),
    (Call::Post, Choice::ReadLate),
    (Call::Arm, Choice::After),
    (Call::Post, Choice::After),
    (Call::Poll, Choice::Drip),
    (Call::Event, Choice::After),
    (Call::Event, Choice::Interrupt),
    (Call::Async, Choice::After),
    (Call::Connection, Choice::After),
];
/// Limit of pairs; seeds cover the other combinations.
const PAIRS: usize = 40;

/// An endless series of schedules.
#[derive(Clone, Debug)]
pub struct Plan {
    singles: usize,
    /// Schedules in reverse order: the next schedule is last.
    listed: Vec<Schedule>,
    seed: u64,
}

impl Plan {
    /// Creates a plan from the places (each with an object) that a run without choices reached.
    #[must_use]
    pub fn new(met: &[(&Site, u64)], seed: u64) -> Self {
        let mut sites: Vec<&Site> = met.iter().map(|(site, _)| *site).collect();
        sites.sort();
        sites.dedup();
        let objects = |site: &Site| {
            let of: Vec<_> =
                met.iter().filter(|(s, _)| *s == site).map(|(_, n)| Which::Nth(*n)).collect();
            if of.len() > 1 { of } else { Vec::new() }
        };
        let entries = |which: &dyn Fn(&Site) -> Vec<Which>| {
            let mut all = Vec::new();
            for (call, choice) in ORDER {
                for site in sites.iter().copied().filter(|s| s.call == call) {
                    let entry = |object| ChoiceEntry {
                        site: site.clone(),
                        object,
                        count: Which::Any,
                        choice,
                    };
                    all.extend(which(site).into_iter().map(entry));
                }
            }
            all
        };
        let mut singles = entries(&|_| vec![Which::Any]);
        let pairs = pairs(&singles, seed);
        // Also one object alone, for a place with several objects.
        singles.extend(entries(&objects));
        let mut listed: Vec<_> = singles.iter().map(|e| Schedule::of(vec![e.clone()])).collect();
        let singles = listed.len();
        listed.extend(pairs.into_iter().map(Schedule::of));
        listed.reverse();
        Plan { singles, listed, seed }
    }

    /// Number of schedules with a single choice.
    #[must_use]
    pub fn singles(&self) -> usize {
        self.singles
    }

    /// The next schedule.
    pub fn next_schedule(&mut self) -> Schedule {
        self.listed.pop().unwrap_or_else(|| {
            self.seed += 1;
            Schedule::random(self.seed - 1)
        })
    }
}

/// Pairs of choices at different places, in an order given by the seed.
fn pairs(singles: &[ChoiceEntry], seed: u64) -> Vec<Vec<ChoiceEntry>> {
    let mut all = Vec::new();
    for (i, a) in singles.iter().enumerate() {
        for b in singles[i + 1..].iter().filter(|b| b.site != a.site) {
            all.push((mix(seed ^ mix(all.len() as u64)), a, b));
        }
    }
    all.sort_by_key(|(draw, ..)| *draw);
    all.into_iter().take(PAIRS).map(|(_, a, b)| vec![a.clone(), b.clone()]).collect()
}
