//! The command line of the programs that fill BENCHMARKS.md, and their rounds.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::series::Samples;
use crate::{Result, report};

/// `[--quick] [--runs N] [--no-write] [FILE]`.
#[derive(Debug)]
pub struct Options {
    /// Shorter measurements and fewer rounds.
    pub quick: bool,
    /// Rounds.
    pub runs: usize,
    /// Whether the file is written.
    pub write: bool,
    /// The file with the markers.
    pub file: PathBuf,
}

impl Options {
    /// Reads them; `runs` are the rounds of a full run unless told otherwise.
    ///
    /// # Errors
    /// What is unknown, and the usage.
    pub fn read(args: impl Iterator<Item = String>, runs: usize) -> Result<Self> {
        let mut found = Self { quick: false, runs: 0, write: true, file: PathBuf::from("BENCHMARKS.md") };
        let mut args = args;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => found.quick = true,
                "--no-write" => found.write = false,
                "--runs" => {
                    let n = args.next().unwrap_or_default();
                    found.runs = n.parse().map_err(|e| format!("--runs {n}: {e}"))?;
                }
                file if !file.starts_with('-') => found.file = PathBuf::from(file),
                other => {
                    return Err(format!(
                        "unknown option {other}; usage: [--quick] [--runs N] [--no-write] [FILE]"
                    ));
                }
            }
        }
        if found.runs == 0 {
            found.runs = if found.quick { 1 } else { runs };
        }
        Ok(found)
    }

    /// Prints a report and its failures, and writes it between the markers of that name; false when something failed.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(&self, name: &str, text: &str, failures: &[String]) -> Result<bool> {
        println!("{text}");
        for failure in failures {
            eprintln!("bench: {failure}");
        }
        if self.write {
            report::write(&self.file, name, text)?;
            println!("written to {}", self.file.display());
        }
        Ok(failures.is_empty())
    }
}

/// Runs all items in every round. After `budget` the rest is left out, and said to be.
pub fn rounds<I, K: Ord>(
    items: &[I],
    budget: Duration,
    samples: &mut Samples<K>,
    mut run: impl FnMut(&I, usize, &mut Samples<K>),
) {
    let start = Instant::now();
    for round in 0..samples.rounds {
        for (n, item) in items.iter().enumerate() {
            if start.elapsed() > budget {
                samples.failures.push(format!("out of time in round {}: the rest was left out", round + 1));
                return;
            }
            eprint!("\rround {} of {}: {} of {}   ", round + 1, samples.rounds, n + 1, items.len());
            run(item, round, samples);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let read = |line: &str| Options::read(line.split_whitespace().map(str::to_string), 5);
        let quick = read("--quick --no-write other.md").unwrap();
        assert_eq!((quick.runs, quick.write, quick.file), (1, false, PathBuf::from("other.md")));
        assert_eq!(read("").unwrap().runs, 5);
        assert_eq!(read("--quick --runs 2").unwrap().runs, 2);
        assert!(read("--slow").is_err() && read("--runs x").is_err());
    }

    #[test]
    fn what_there_is_no_time_for_is_said_to_be_left_out() {
        let mut samples: Samples<u8> = Samples::new(3);
        let mut ran = Vec::new();
        rounds(&["a", "b"], Duration::from_secs(60), &mut samples, |i, round, _| ran.push((*i, round)));
        assert_eq!(ran, [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]);
        assert!(samples.failures.is_empty());
        rounds(&["a"], Duration::ZERO, &mut samples, |_, _, _| std::thread::sleep(Duration::from_millis(1)));
        assert_eq!(samples.failures.len(), 1, "{:?}", samples.failures);
    }
}
