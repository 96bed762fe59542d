//! The command line of the programs that fill BENCHMARKS.md, and their rounds.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;

use crate::items::Item;
use crate::report::{self, Key};
use crate::series::Samples;
use crate::{Result, machine};

/// Measures a half of BENCHMARKS.md and writes it there; `scripts/bench` calls it
#[derive(Debug, clap::Parser)]
pub struct Options {
    /// Shorter measurements and fewer rounds
    #[arg(long)]
    pub quick: bool,
    /// Rounds
    #[arg(long)]
    runs: Option<NonZeroUsize>,
    /// Print the report only
    #[arg(long)]
    no_write: bool,
    /// The file with the markers
    #[arg(default_value = "BENCHMARKS.md")]
    pub file: PathBuf,
}

impl Options {
    /// Number of rounds: as given, or one for a quick run, or `full`.
    #[must_use]
    pub fn runs(&self, full: usize) -> usize {
        self.runs.map_or(if self.quick { 1 } else { full }, NonZeroUsize::get)
    }

    /// Prints a report and its failures, and writes the report between the markers `name`; `false`
    /// if something failed.
    fn finish(&self, name: &str, text: &str, failures: &[String]) -> Result<bool> {
        let text = match failures.len() {
            0 => text.trim_end().to_string(),
            n => format!("{}\n\n{n} runs failed or were left out.", text.trim_end()),
        };
        println!("{text}");
        for failure in failures {
            eprintln!("bench: {failure}");
        }
        if !self.no_write {
            report::write(&self.file, name, &text)?;
            println!("written to {}", self.file.display());
        }
        Ok(failures.is_empty())
    }
}

/// A program for a half of BENCHMARKS.md. `measure` returns the report below the lines about
/// machine and date, and the failures. `commands` are those of a full and of a quick run.
pub fn fill(
    name: &str,
    commands: [&str; 2],
    packages: &[&str],
    measure: impl FnOnce(&Options) -> Result<(String, Vec<String>)>,
) -> ExitCode {
    let (options, start) = (Options::parse(), Instant::now());
    // Read now, because a commit may happen during the run.
    let revision = machine::revision();
    let done = measure(&options).and_then(|(text, failures)| {
        let command = commands[usize::from(options.quick)];
        let heading = machine::describe(&revision, command, packages, start.elapsed());
        options.finish(name, &(heading + &text), &failures)
    });
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Runs all items in every round. After `budget` the rest is left out, and a failure says so.
pub fn rounds(items: &[Item], budget: Duration, samples: &mut Samples<Key>) {
    let start = Instant::now();
    for round in 0..samples.rounds {
        for (n, item) in items.iter().enumerate() {
            if start.elapsed() > budget {
                samples
                    .failures
                    .push(format!("out of time in round {}: the rest was left out", round + 1));
                return;
            }
            eprint!("\rround {} of {}: {} of {}   ", round + 1, samples.rounds, n + 1, items.len());
            item.run(samples, round);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::What;

    #[test]
    fn options_are_read() {
        let read = |line: &str| {
            Options::try_parse_from(["bench"].into_iter().chain(line.split_whitespace()))
        };
        let quick = read("--quick --no-write other.md").unwrap();
        assert_eq!(
            (quick.runs(5), quick.no_write, quick.file),
            (1, true, PathBuf::from("other.md"))
        );
        assert_eq!(read("").unwrap().runs(5), 5);
        assert_eq!(read("--quick --runs 2").unwrap().runs(5), 2);
        assert!(["--slow", "--runs x", "--runs 0"].iter().all(|line| read(line).is_err()));
    }

    #[test]
    fn what_there_is_no_time_for_is_said_to_be_left_out() {
        let mut samples = Samples::new(3);
        let key = |name: &'static str| Key::new(name, 0, What::Number);
        let items = ["a", "b"].map(|name| {
            Item::new(name, move |_, round| {
                std::thread::sleep(Duration::from_millis(1));
                Ok(vec![(key(name), round as f64)])
            })
        });
        rounds(&items, Duration::from_secs(60), &mut samples);
        for name in ["a", "b"] {
            let ran = samples.series(&key(name)).unwrap();
            assert_eq!((ran.count, ran.min, ran.max), (3, 0.0, 2.0));
        }
        assert!(samples.failures.is_empty());
        rounds(&items, Duration::ZERO, &mut samples);
        assert_eq!(samples.failures.len(), 1, "{:?}", samples.failures);
    }
}
