//! The order in which schedules are tried: single choices, then pairs, then seeds.
//!
//! The plan learns from each run. A choice that changed the program's path comes first in pairs.
use crate::{Call, Choice, ChoiceEntry, Schedule, Site, Which, mix};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Choices, in the order of how many mistakes they find.
const ORDER: [(Call, Choice); 25] = [
    (Call::Arm, Choice::Before),
    (Call::Poll, Choice::After),
    (Call::Poll, Choice::Hold),
    (Call::Post, Choice::Late),
    (Call::Post, Choice::TailFirst),
    (Call::Post, Choice::Full),
    (Call::Error, Choice::Garbage),
    (Call::Message, Choice::Garbage),
    (Call::Acknowledge, Choice::Garbage),
    (Call::Shared, Choice::ReceiveFirst),
    (Call::Register, Choice::Refuse),
    (Call::Unreliable, Choice::Lose),
    (Call::Event, Choice::Before),
    (Call::Async, Choice::Before),
    (Call::Connection, Choice::Before),
    (Call::Receive, Choice::Before),
    (Call::Modify, Choice::Late),
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
const PAIRS: usize = 120;
/// Limit of single choices that concern one object of a place.
const OBJECTS: usize = 60;
/// Limit of schedules that are tried because a run reached a new place.
const NEWS: usize = 60;
/// One of so many schedules with a seed also has a choice that changed the program's path.
const MIXED: u64 = 3;

/// The path of a program in one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunPath {
    /// The places reached, each with its number of visits as a binary logarithm, rounded down.
    pub visits: BTreeMap<Site, u32>,
    /// Number of choices made.
    pub made: usize,
    /// How long the run took.
    pub took: Duration,
}

/// The paths of runs without choices.
#[derive(Clone, Debug, Default)]
struct UsualPath {
    /// The least and the greatest logarithm of visits.
    visits: BTreeMap<Site, (u32, u32)>,
    took: Duration,
}

impl UsualPath {
    fn widen(&mut self, path: &RunPath) {
        for (site, n) in &path.visits {
            let (least, most) = self.visits.entry(site.clone()).or_insert((*n, *n));
            (*least, *most) = ((*least).min(*n), (*most).max(*n));
        }
        self.took = self.took.max(path.took);
    }

    /// How much a path differs: 4 for a new place, 2 for a place not reached, 1 to 3 for another
    /// number of visits, and 1 for a much longer time.
    fn difference(&self, path: &RunPath) -> u32 {
        let of_site = |(site, n): (&Site, &u32)| match self.visits.get(site) {
            None => 4,
            Some((least, most)) => n.saturating_sub(*most).max(least.saturating_sub(*n)).min(3),
        };
        let missed = self.visits.keys().filter(|site| !path.visits.contains_key(site)).count();
        path.visits.iter().map(of_site).sum::<u32>()
            + 2 * missed as u32
            + u32::from(path.took > self.took * 4)
    }
}

/// An endless series of schedules.
#[derive(Clone, Debug)]
pub struct Plan {
    singles: usize,
    /// Schedules in reverse order: the next schedule is last.
    listed: Vec<Schedule>,
    /// The single choices that are combined, each with the difference that the choice made.
    entries: Vec<(ChoiceEntry, u32)>,
    usual: UsualPath,
    /// Every place reached so far.
    known: BTreeSet<Site>,
    /// Number of schedules that were added for a new place.
    news: usize,
    has_pairs: bool,
    first_seed: u64,
    seed: u64,
}

impl Plan {
    /// Creates a plan from the places (each with an object) that runs without choices reached.
    #[must_use]
    pub fn new(met: &[(&Site, u64)], seed: u64) -> Self {
        let known: BTreeSet<Site> = met.iter().map(|(site, _)| (*site).clone()).collect();
        let objects = |site: &Site| {
            let of: Vec<_> =
                met.iter().filter(|(s, _)| *s == site).map(|(_, n)| Which::Nth(*n)).collect();
            if of.len() > 1 { of } else { Vec::new() }
        };
        let entries = |which: &dyn Fn(&Site) -> Vec<Which>| {
            let mut all = Vec::new();
            // Each kind of choice at all places, then the next kind.
            for (call, choice) in ORDER {
                for site in known.iter().filter(|s| s.call == call) {
                    let entry = |object| entry_at(site, object, choice);
                    all.extend(which(site).into_iter().map(entry));
                }
            }
            all
        };
        let mut singles = entries(&|_| vec![Which::Any]);
        let is_combined = |entry: &&ChoiceEntry| !entry.choice.may_end();
        let combined = singles.iter().filter(is_combined).map(|e| (e.clone(), 0)).collect();
        // Also one object alone, for a place with several objects. Then the objects differ in time,
        // so this helps no choice of a value or of a failure.
        let mut alone = entries(&objects);
        alone.retain(|entry| entry.choice != Choice::Garbage && !entry.choice.may_end());
        singles.extend(some_of(alone, OBJECTS, seed));
        let mut listed: Vec<_> = singles.into_iter().map(|e| Schedule::of(vec![e])).collect();
        let singles = listed.len();
        listed.reverse();
        Plan {
            singles,
            listed,
            entries: combined,
            usual: UsualPath::default(),
            known,
            news: 0,
            has_pairs: false,
            first_seed: seed,
            seed,
        }
    }

    /// Number of schedules with a single choice.
    #[must_use]
    pub fn singles(&self) -> usize {
        self.singles
    }

    /// A run by this schedule took this path.
    ///
    /// - A run without choices shows the usual path.
    /// - A single choice counts as much as the path differed. [`Plan::next_schedule`] combines the
    ///   choices that count most first.
    /// - If the run reached a place for the first time, the next schedules repeat the run with a
    ///   choice at this place.
    pub fn learn(&mut self, schedule: &Schedule, path: &RunPath) {
        let new: Vec<_> =
            path.visits.keys().filter(|site| !self.known.contains(site)).cloned().collect();
        if schedule.is_empty() {
            self.usual.widen(path);
        } else if schedule.rate == 0
            && let [entry] = &schedule.entries[..]
            && let Some((_, counts)) = self.entries.iter_mut().find(|(e, _)| e == entry)
        {
            let difference = if path.made == 0 { 0 } else { self.usual.difference(path) };
            *counts = (*counts).max(difference);
        }
        for site in new.into_iter().rev() {
            // The last schedule pushed is the next to be tried.
            for (call, choice) in ORDER.into_iter().rev() {
                if call == site.call && !choice.may_end() && self.news < NEWS {
                    self.news += 1;
                    let mut next = schedule.clone();
                    next.entries.insert(0, entry_at(&site, Which::Any, choice));
                    self.listed.push(next);
                }
            }
            self.known.insert(site);
        }
    }

    /// The next schedule.
    pub fn next_schedule(&mut self) -> Schedule {
        if self.listed.is_empty() && !self.has_pairs {
            self.has_pairs = true;
            self.listed = pairs(&self.entries, self.first_seed);
            self.listed.reverse();
        }
        self.listed.pop().unwrap_or_else(|| {
            self.seed += 1;
            self.with_a_good_choice(Schedule::random(self.seed - 1))
        })
    }

    /// Adds to some seeds a choice that changed the program's path.
    fn with_a_good_choice(&self, mut schedule: Schedule) -> Schedule {
        let good: Vec<_> = self.entries.iter().filter(|(_, counts)| *counts > 0).collect();
        let nth = schedule.seed.wrapping_sub(self.first_seed);
        if nth % MIXED == MIXED - 1 && !good.is_empty() {
            let (entry, _) = good[(nth / MIXED) as usize % good.len()];
            schedule.entries.push(entry.clone());
        }
        schedule
    }
}

fn entry_at(site: &Site, object: Which, choice: Choice) -> ChoiceEntry {
    let count = if choice.may_end() { Which::Nth(1) } else { Which::Any };
    ChoiceEntry { site: site.clone(), object, count, choice }
}

/// All of the choices in their order, or some of them in an order given by the seed.
fn some_of(mut all: Vec<ChoiceEntry>, most: usize, seed: u64) -> Vec<ChoiceEntry> {
    if all.len() > most {
        let mut drawn: Vec<_> =
            all.into_iter().zip(0..).map(|(entry, n)| (mix(seed ^ mix(n)), entry)).collect();
        drawn.sort_by_key(|(draw, _)| *draw);
        all = drawn.into_iter().take(most).map(|(_, entry)| entry).collect();
    }
    all
}

/// Pairs of choices at different places. Pairs of choices that count most come first, and pairs
/// that count the same have an order given by the seed.
fn pairs(entries: &[(ChoiceEntry, u32)], seed: u64) -> Vec<Schedule> {
    let mut all = Vec::new();
    for (i, (a, a_counts)) in entries.iter().enumerate() {
        for (b, b_counts) in entries[i + 1..].iter().filter(|(b, _)| b.site != a.site) {
            let draw = mix(seed ^ mix(all.len() as u64));
            all.push((std::cmp::Reverse(a_counts + b_counts), draw, a, b));
        }
    }
    all.sort_by_key(|(counts, draw, ..)| (*counts, *draw));
    let schedule = |a: &ChoiceEntry, b: &ChoiceEntry| Schedule::of(vec![a.clone(), b.clone()]);
    all.into_iter().take(PAIRS).map(|(.., a, b)| schedule(a, b)).collect()
}
