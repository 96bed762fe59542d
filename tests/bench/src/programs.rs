//! The measured programs and their output: perftest under `adverb run`, and Adverb's own programs
//! beside this one.

use std::time::Duration;

use adverb_foreign::pair::PairOutcome;
use adverb_foreign::process::Program;

use crate::Result;
use crate::report::{Key, What};
use crate::series::Series;

/// Time limit of a run: a longer run hangs, or is too slow for a figure.
pub const LIMIT: Duration = Duration::from_secs(15);

/// The environment variable for the path of packets, for the measured programs.
pub const PATH: &str = "ADVERB_PATH";

/// The program whose ends sleep in waits of the C library. The preload lets these waits drive.
const WAKE: &str = "wake";

/// One of Adverb's own programs under `adverb run`.
fn waiting(program: &str, args: &[&str]) -> Result<Program> {
    let exe = std::env::current_exe().map_err(|e| format!("own path: {e}"))?;
    Ok(Program::new(exe.with_file_name(program).display().to_string(), args))
}

/// One of Adverb's own programs, which lie beside this program and need no `adverb run`.
///
/// # Errors
/// The path of this program is unknown.
pub fn own(program: &str, args: &[&str]) -> Result<Program> {
    Ok(waiting(program, args)?.bare())
}

/// The figure `name` of a program of Adverb, measured for about `time`. `path` sets [`PATH`], or
/// leaves it unset.
///
/// # Errors
/// The failure of the program, or output without the figure.
pub fn figure(program: &str, name: &str, time: Duration, path: Option<&str>) -> Result<f64> {
    let args = ["--ms", &time.as_millis().to_string(), name];
    let program = if program == WAKE { waiting(program, &args)? } else { own(program, &args)? };
    let out = path.into_iter().fold(program, |p, path| p.env(PATH, path)).run_ok(LIMIT)?;
    number_after(&out.text, name).ok_or_else(|| out.describe())
}

/// All figures of a program that verifies each before it prints it.
#[derive(Debug)]
pub struct Once(String);

impl Once {
    /// Runs the program once. A failure is recorded, and the figures printed before it stay valid.
    pub fn run(program: Result<Program>, limit: Duration, failures: &mut Vec<String>) -> Self {
        let ended = program.and_then(|p| p.run(limit));
        let why = ended.as_ref().map_or_else(|e| Some(e.clone()), |o| o.require_ok().err());
        failures.extend(why);
        Self(ended.map_or(String::new(), |out| out.text))
    }

    /// A figure by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<f64> {
        number_after(&self.0, name)
    }

    /// The rest of all names with this beginning.
    #[must_use]
    pub fn endings(&self, beginning: &str) -> Vec<String> {
        let ending = |l: &str| l.strip_prefix(beginning)?.split(' ').next().map(str::to_string);
        self.0.lines().filter_map(ending).collect()
    }
}

impl From<&str> for Once {
    fn from(text: &str) -> Self {
        Self(text.to_string())
    }
}

/// The number after a name at the start of a line.
#[must_use]
pub fn number_after(text: &str, name: &str) -> Option<f64> {
    text.lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.split(' ').next()?.parse().ok())
}

/// Result of a program of perftest, or of UCX.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Figures {
    /// Seconds of a message: half a round trip, or a whole one for READ and atomics.
    Latency {
        /// Median of all messages.
        median: f64,
        /// Mean of all messages.
        mean: f64,
    },
    /// Bytes and messages per second, over the whole run.
    Stream {
        /// Bytes per second.
        bytes: f64,
        /// Messages per second.
        messages: f64,
    },
}

impl Figures {
    /// The values by unit, for the name and size of a program.
    #[must_use]
    pub fn values(self, name: &str, size: usize) -> Vec<(Key, f64)> {
        let key = |what| Key::new(name, size, what);
        match self {
            Figures::Latency { median, .. } => vec![(key(What::Latency), median)],
            Figures::Stream { bytes, messages } => {
                vec![(key(What::Bytes), bytes), (key(What::Messages), messages)]
            }
        }
    }

    /// Messages per second. A latency counts as half a round trip, so a run of another latency
    /// program becomes half as long, without harm.
    #[must_use]
    pub fn rate(self) -> f64 {
        match self {
            Figures::Latency { mean, .. } => 0.5 / mean,
            Figures::Stream { messages, .. } => messages,
        }
    }
}

/// Number of messages that fill `time`, at the rate of an earlier run.
#[must_use]
pub fn iterations(rate: f64, time: Duration, most: usize) -> usize {
    ((rate * time.as_secs_f64()) as usize).clamp(100, most)
}

/// Whether both ends succeeded.
#[must_use]
pub fn both_ok(out: &PairOutcome) -> bool {
    out.server.ok() && out.client.ok()
}

/// Both ends with their output, without the list of all latencies, which may have a hundred
/// thousand lines.
#[must_use]
pub fn shown(out: &PairOutcome) -> String {
    let mut out = out.clone();
    for end in [&mut out.client, &mut out.server] {
        let kept: Vec<&str> = end.text.lines().filter(|l| one_of_many(l).is_none()).collect();
        end.text = kept.join("\n");
    }
    out.describe()
}

/// A line of perftest's list of all results: number and microseconds.
fn one_of_many(line: &str) -> Option<f64> {
    let (n, value) = line.split_once(", ")?;
    n.parse::<u64>().ok().and(value.trim().parse().ok())
}

/// All results listed by the option -H, in seconds.
pub(crate) fn latencies(text: &str) -> Option<Vec<f64>> {
    let found: Vec<f64> = text.lines().filter_map(one_of_many).map(|us| us * 1e-6).collect();
    (!found.is_empty()).then_some(found)
}

pub(crate) fn middle(values: Vec<f64>) -> Option<Figures> {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    Series::of(values.into_iter()).map(|s| Figures::Latency { median: s.median, mean })
}

/// Perftest's line of a bandwidth for `size`: iterations, peak and average in MiB/s, and messages
/// in millions per second.
pub(crate) fn row(text: &str, size: usize) -> Option<Figures> {
    text.lines().find_map(|line| {
        let numbers =
            line.split_whitespace().map(|w| w.parse().ok()).collect::<Option<Vec<f64>>>()?;
        match numbers[..] {
            [s, _, _, average, rate] if s == size as f64 => {
                Some(Figures::Stream { bytes: average * 1_048_576.0, messages: rate * 1e6 })
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_perftest_are_read() {
        let bw = " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n \
                  65536      1000             0.00               3210.50 \t\t   0.051368\n";
        let found = Figures::Stream { bytes: 3210.5 * 1_048_576.0, messages: 51_368.0 };
        assert_eq!(row(bw, 65536), Some(found));
        assert_eq!(row(bw, 8), None);
    }

    #[test]
    fn median_and_mean_of_all_latencies_are_taken() {
        let list = " GID: 00:00\n#, usec\n1, 0.0571\n2, 0.0578\n3, 12.5\n---\n \
                    #bytes #iterations    t_min[usec]\n 8       3    0.06    12.50      0.06\n";
        let found = latencies(list).unwrap();
        assert_eq!(found.len(), 3);
        let Some(Figures::Latency { median, mean }) = middle(found) else { panic!("no median") };
        assert!((median - 57.8e-9).abs() < 1e-12, "{median}");
        assert!((mean - 4.205e-6).abs() < 1e-9, "{mean}");
        assert!(latencies("no list, at all\n").is_none());
    }

    #[test]
    fn figures_are_read_by_their_whole_name() {
        let text = "udp_gso_window_4156 2e9 B/s\nudp_gso_4156 1.5e9 B/s\n";
        assert_eq!(number_after(text, "udp_gso_4156"), Some(1.5e9));
        assert_eq!(number_after(text, "udp_gso"), None);
        let once = Once::from("pair_send_1 5e-8 s\npair_send_ratio_1 1 1\npair_send_100 6e-8 s\n");
        assert_eq!(once.get("pair_send_100"), Some(6e-8));
        assert_eq!(once.endings("pair_send_ratio_"), ["1"]);
    }

    #[test]
    fn iterations_stay_within_bounds() {
        let second = Duration::from_secs(1);
        assert_eq!(iterations(5.0, second, 1000), 100);
        assert_eq!(iterations(500.0, second, 1000), 500);
        assert_eq!(iterations(1e9, second, 1000), 1000);
    }
}
