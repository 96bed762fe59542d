//! In which order schedules are tried: one choice a place, then pairs, then seeds.
use super::attempt::Met;
use adverb_choice::{Call, Choice, Entry, Schedule, Site, Which, mix};

/// Choices, those first that find most mistakes.
const ORDER: [(Call, Choice); 10] = [
    (Call::Arm, Choice::Before),
    (Call::Poll, Choice::After),
    (Call::Poll, Choice::Hold),
    (Call::Post, Choice::Full),
    (Call::Error, Choice::Garbage),
    (Call::Event, Choice::Before),
    (Call::Arm, Choice::After),
    (Call::Post, Choice::After),
    (Call::Poll, Choice::Drip),
    (Call::Event, Choice::After),
];
/// Pairs at most; seeds find what they miss.
const PAIRS: usize = 40;

/// Schedules without end.
pub struct Plan {
    singles: usize,
    /// The next one is the last.
    listed: Vec<Schedule>,
    seed: u64,
}

impl Plan {
    pub fn new(met: &[Met], seed: u64) -> Self {
        let mut sites: Vec<&Site> = met.iter().map(|m| &m.site).collect();
        sites.sort();
        sites.dedup();
        let objects = |site: &Site| {
            let of: Vec<_> = met.iter().filter(|m| m.site == *site).map(|m| Which::Nth(m.object)).collect();
            if of.len() > 1 { of } else { Vec::new() }
        };
        let entries = |which: &dyn Fn(&Site) -> Vec<Which>| {
            let mut all = Vec::new();
            for (call, choice) in ORDER {
                for site in sites.iter().copied().filter(|s| s.call == call) {
                    let entry = |object| Entry { site: site.clone(), object, count: Which::Any, choice };
                    all.extend(which(site).into_iter().map(entry));
                }
            }
            all
        };
        let mut singles = entries(&|_| vec![Which::Any]);
        let pairs = pairs(&singles, seed);
        // One object alone, where a place has several.
        singles.extend(entries(&objects));
        let mut listed: Vec<_> = singles.iter().map(|e| Schedule::of(vec![e.clone()])).collect();
        let singles = listed.len();
        listed.extend(pairs.into_iter().map(Schedule::of));
        listed.reverse();
        Plan { singles, listed, seed }
    }

    /// Schedules with one choice.
    pub fn singles(&self) -> usize {
        self.singles
    }

    pub fn next_schedule(&mut self) -> Schedule {
        self.listed.pop().unwrap_or_else(|| {
            self.seed += 1;
            Schedule::random(self.seed - 1)
        })
    }
}

/// Pairs of choices at different places, in an order of the seed.
fn pairs(singles: &[Entry], seed: u64) -> Vec<Vec<Entry>> {
    let mut all = Vec::new();
    for (i, a) in singles.iter().enumerate() {
        for b in singles[i + 1..].iter().filter(|b| b.site != a.site) {
            all.push((mix(seed ^ mix(all.len() as u64)), a, b));
        }
    }
    all.sort_by_key(|(draw, ..)| *draw);
    all.into_iter().take(PAIRS).map(|(_, a, b)| vec![a.clone(), b.clone()]).collect()
}
