//! The runs of a plan, and the values of each.

use std::time::Duration;

use crate::Result;
use crate::ends::Ends;
use crate::message_test::Test;
use crate::programs::{figure, iterations};
use crate::report::{Key, What};
use crate::series::Samples;

/// Limit of messages in a run, for streams and for latencies. Latencies are listed one by one.
const MOST: [usize; 2] = [20_000_000, 300_000];

/// The values of a run.
pub type Values = Vec<(Key, f64)>;

type Run = dyn Fn(&mut Samples<Key>, usize) -> Result<Values>;

/// How the length of a test's first run is found. Later runs know the rate of the earlier ones.
#[derive(Clone, Copy, Debug)]
pub enum First {
    /// By an estimate of the messages per second.
    Rate(f64),
    /// By another run before it, of so many messages.
    Messages(usize),
}

/// One run of a program in each round.
pub struct Item {
    /// What runs.
    pub name: String,
    run: Box<Run>,
}

impl Item {
    /// A run in a round. It may add failures to the samples, and returns its values.
    pub fn new(
        name: impl Into<String>,
        run: impl Fn(&mut Samples<Key>, usize) -> Result<Values> + 'static,
    ) -> Self {
        Self { name: name.into(), run: Box::new(run) }
    }

    /// A figure of one of Adverb's programs, measured for about `time`, with the values made of it.
    /// `path` is the path of packets, if set.
    pub fn figure(
        program: &'static str,
        name: impl Into<String>,
        time: Duration,
        path: Option<&'static str>,
        values: impl Fn(f64) -> Values + 'static,
    ) -> Self {
        let name = name.into();
        Self::new(name.clone(), move |_, _| figure(program, &name, time, path).map(&values))
    }

    /// A test between two ends that fills the time. Its values are kept under this name.
    pub fn test(
        name: impl Into<String>,
        test: Test<'static>,
        ends: &Ends,
        time: Duration,
        first: First,
    ) -> Self {
        let (name, ends) = (name.into(), ends.clone());
        Self::new(format!("{name} -s {}", test.size), move |samples, _| {
            let what = if test.latency { What::Latency } else { What::Messages };
            let known = samples.series(&Key::new(&*name, test.size, what)).map(|s| s.median);
            let rate = match (known, first) {
                (Some(latency), _) if test.latency => 1.0 / (latency * test.trips()),
                (Some(rate), _) | (None, First::Rate(rate)) => rate,
                (None, First::Messages(n)) => test.run(&ends, n)?.rate(),
            };
            let n = iterations(rate, time, MOST[usize::from(test.latency)]);
            Ok(test.run(&ends, n)?.values(&name, test.size))
        })
    }

    /// Runs in a round, and records the values or the failure.
    pub fn run(&self, samples: &mut Samples<Key>, round: usize) {
        match (self.run)(samples, round) {
            Ok(values) => values.into_iter().for_each(|(key, v)| samples.add(key, round, v)),
            Err(why) => samples.failures.push(format!("round {}: {}: {why}", round + 1, self.name)),
        }
    }
}
