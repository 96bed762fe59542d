//! Tables in Markdown that also read well on a terminal, bars, and the file with the tables.

use std::path::Path;

use crate::series::{Samples, Series};

/// Margin by which a result may be better than a limit of the machine. Beyond it the measurement of
/// the limit was disturbed.
const SLACK: f64 = 1.05;

/// The target of a ratio.
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// This value or more.
    AtLeast(f64),
    /// This value or less.
    AtMost(f64),
}

impl Bar {
    /// The bar as text for the table.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Bar::AtLeast(b) => format!("≥ {b}"),
            Bar::AtMost(b) => format!("≤ {b}"),
        }
    }

    /// Whether the bar is met. The verdict is "unclear" when rounds failed. It is also "unclear"
    /// when the ratio is to a limit of the machine (`limit`), and one round was better than the
    /// limit. Then the machine was busy with something else while the limit was measured.
    #[must_use]
    pub fn verdict(self, found: Series, limit: bool, rounds: usize) -> &'static str {
        let (met, beyond) = match self {
            Bar::AtLeast(b) => (found.median >= b, found.max > SLACK),
            Bar::AtMost(b) => (found.median <= b, found.min < 1.0 / SLACK),
        };
        match found.count < rounds || (limit && beyond) {
            true => "unclear",
            false if met => "yes",
            false => "no",
        }
    }
}

/// A size in bytes, in words.
#[must_use]
pub fn size_name(size: usize) -> String {
    match size {
        0..1024 => format!("{size} B"),
        1024..1_048_576 => format!("{} KiB", size / 1024),
        _ => format!("{} MiB", size >> 20),
    }
}

/// Three significant digits.
#[must_use]
pub fn number(v: f64) -> String {
    match v.abs() {
        0.0 => "0".to_string(),
        a if a >= 100.0 => format!("{v:.0}"),
        a if a >= 10.0 => format!("{v:.1}"),
        a if a >= 0.1 => format!("{v:.2}"),
        _ => format!("{v:.4}"),
    }
}

/// Median and range. The number of failed rounds is added, because a median hides them.
#[must_use]
pub fn cell(series: Option<Series>, rounds: usize) -> String {
    match series {
        None => "failed".to_string(),
        Some(s) if s.count < rounds => {
            let (min, max) = (number(s.min), number(s.max));
            format!("{} ({min}–{max}; {} of {rounds} runs)", number(s.median), s.count)
        }
        Some(s) if s.count == 1 => number(s.median),
        Some(s) => format!("{} ({}–{})", number(s.median), number(s.min), number(s.max)),
    }
}

/// The cell of a series, in a unit that is `scale` times smaller.
#[must_use]
pub fn value<K: Ord>(samples: &Samples<K>, key: &K, scale: f64) -> String {
    cell(samples.series(key).map(|s| s.scaled(scale)), samples.rounds)
}

/// Units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    /// Seconds.
    Latency,
    /// Bytes per second.
    Bytes,
    /// Messages per second.
    Messages,
    /// Another number.
    Number,
}

/// Identifies a series of values.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// A program, a test of UCX, a limit, or a figure of another program.
    pub name: String,
    /// Bytes of a message; 0 without messages.
    pub size: usize,
    /// Unit.
    pub what: What,
}

impl Key {
    /// The key of a program or limit.
    #[must_use]
    pub fn new(name: impl Into<String>, size: usize, what: What) -> Self {
        Self { name: name.into(), size, what }
    }

    /// Scale and name of the unit in tables, of seconds or bytes per second.
    #[must_use]
    pub fn unit(&self) -> (f64, &'static str) {
        if self.what == What::Latency { (1e6, "µs") } else { (1e-9, "GB/s") }
    }

    /// The function that chooses the better of two values.
    fn better(&self) -> fn(f64, f64) -> f64 {
        if self.what == What::Latency { f64::min } else { f64::max }
    }
}

/// The quotients of a value and the best of others, round by round.
#[must_use]
pub fn ratio(samples: &Samples<Key>, of: &Key, to: &[Key]) -> Option<Series> {
    samples.ratio(of, to, of.better())
}

/// A comparison.
pub struct Ratio {
    /// The name in the table.
    pub name: String,
    /// The value.
    pub of: Key,
    /// The divisor: the best of these.
    pub to: Vec<Key>,
    /// The goal.
    pub bar: Option<Bar>,
    /// Whether the divisor is a limit of the machine.
    pub limit: bool,
}

impl Ratio {
    /// A row of a table of bars.
    #[must_use]
    pub fn row(&self, samples: &Samples<Key>) -> Vec<String> {
        let found = ratio(samples, &self.of, &self.to);
        bar_row(&self.name, found, self.bar, self.limit, samples.rounds)
    }
}

/// The head of a table of bars.
pub const BARS: [&str; 4] = ["in the same round", "figure", "bar", "met"];

/// A row of a table of bars. `limit` says whether the figure is a ratio to a limit of the machine.
#[must_use]
pub fn bar_row(
    name: &str,
    found: Option<Series>,
    bar: Option<Bar>,
    limit: bool,
    rounds: usize,
) -> Vec<String> {
    let met = found.zip(bar).map_or("", |(s, bar)| bar.verdict(s, limit, rounds));
    let bar = bar.map_or(String::new(), Bar::words);
    vec![name.to_string(), cell(found, rounds), bar, met.to_string()]
}

/// A part of a report: a heading and a table.
pub fn section<S: AsRef<str>>(
    title: &str,
    head: &[S],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    format!("### {title}\n\n{}\n", table(head, rows))
}

/// A Markdown table, padded for a terminal.
pub fn table<S: AsRef<str>>(head: &[S], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|s| s.as_ref().to_string()).collect::<Vec<_>>();
    let columns = head.len();
    let rows: Vec<_> = [head].into_iter().chain(rows).collect();
    let width = |c: usize| {
        rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (n, row) in rows.iter().enumerate() {
        for (c, (value, width)) in row.iter().zip(&widths).enumerate() {
            let pad = " ".repeat(width - value.chars().count());
            text += &if c == 0 { format!("| {value}{pad} ") } else { format!("| {pad}{value} ") };
        }
        text += "|\n";
        if n == 0 {
            for (c, width) in widths.iter().enumerate() {
                text += &format!("|{}{}", "-".repeat(width + 1), if c == 0 { '-' } else { ':' });
            }
            text += "|\n";
        }
    }
    text
}

/// Puts a report between the markers `<!-- NAME: begin -->` and `<!-- NAME: end -->` of a file.
///
/// # Errors
/// The file cannot be read or written, or has no markers.
pub fn write(file: &Path, name: &str, text: &str) -> Result<(), String> {
    let path = file.display();
    let old = std::fs::read_to_string(file).map_err(|e| format!("{path}: {e}"))?;
    let new =
        replaced(&old, name, text).ok_or_else(|| format!("{path} has no markers of {name:?}"))?;
    std::fs::write(file, new).map_err(|e| format!("{path}: {e}"))
}

fn replaced(old: &str, name: &str, text: &str) -> Option<String> {
    let begin = format!("<!-- {name}: begin -->");
    let begin = old.find(&begin)? + begin.len();
    let end = begin + old[begin..].find(&format!("<!-- {name}: end -->"))?;
    Some(format!("{}\n{text}\n{}", &old[..begin], &old[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let (begin, end) = ("<!-- this: begin -->", "<!-- this: end -->");
        let other = "<!-- other: begin -->\nkept\n<!-- other: end -->\n";
        let old = format!("before\n{other}{begin}\nold\n{end}\nafter\n");
        let new = format!("before\n{other}{begin}\nnew\n{end}\nafter\n");
        assert_eq!(replaced(&old, "this", "new"), Some(new));
        assert_eq!(replaced("nothing", "this", "new"), None);
        assert_eq!(replaced(&format!("{end}{begin}"), "this", "new"), None);
    }

    #[test]
    fn a_busy_machine_or_a_failed_round_meets_no_bar() {
        let series = |min, max, count| Series { median: 0.9, min, max, count };
        let least = Bar::AtLeast(0.7);
        assert_eq!(least.verdict(series(0.8, 0.95, 3), true, 3), "yes");
        assert_eq!(least.verdict(series(0.8, 1.3, 3), true, 3), "unclear");
        assert_eq!(least.verdict(series(0.8, 1.3, 3), false, 3), "yes");
        assert_eq!(least.verdict(series(0.8, 0.95, 2), true, 3), "unclear");
        assert_eq!(Bar::AtLeast(0.91).verdict(series(0.8, 0.95, 3), true, 3), "no");
        // A latency below the limit is impossible.
        assert_eq!(Bar::AtMost(1.5).verdict(series(0.8, 1.3, 3), true, 3), "unclear");
        assert_eq!(Bar::AtMost(1.5).verdict(series(0.8, 1.3, 3), false, 3), "yes");
        assert_eq!(Bar::AtMost(0.5).verdict(series(0.8, 1.3, 3), false, 3), "no");
        assert_eq!(
            Bar::AtMost(0.0).verdict(Series { median: 0.0, ..series(0.0, 0.0, 1) }, false, 1),
            "yes"
        );
        assert_eq!(number(0.0), "0");
        assert_eq!(cell(Some(series(0.8, 1.3, 2)), 3), "0.90 (0.80–1.30; 2 of 3 runs)");
    }
}
