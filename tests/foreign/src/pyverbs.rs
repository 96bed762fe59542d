//! The Python suite of rdma-core as packaged by Debian, run test by test with a time limit each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::device::DeviceArgs;
use crate::process::{self, output_of};

/// The names of the tests that need nothing beyond plain verbs.
pub const CORE: &str = include_str!("../data/pyverbs_core.txt");
/// All tests without a vendor.
pub const GENERIC: &str = include_str!("../data/pyverbs_generic.txt");
/// Directory of the suite in Debian's rdma-core.
const SUITE: &str = "/usr/share/doc/rdma-core/tests";
/// The interpreter with python3-pyverbs.
const PYTHON: &str = "/usr/bin/python3";
/// A test without output for this time hangs. The slowest good tests take a few seconds, and more
/// on a busy machine.
const TEST_LIMIT: Duration = Duration::from_secs(90);

/// Result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// The test ran and passed.
    Ok,
    /// The suite skipped the test.
    Skip,
    /// An assertion failed.
    Fail,
    /// An exception.
    Error,
    /// The interpreter died in the test.
    Crash,
    /// The test exceeded the time limit.
    Hang,
}

/// Result and reason for each test name.
pub type Report = BTreeMap<String, (Word, String)>;

/// The names of a list, without blank lines.
pub fn names(list: &str) -> Vec<&str> {
    list.lines().map(str::trim).filter(|l| !l.is_empty()).collect()
}

/// Unpacks the suite into a new directory under the target directory.
///
/// # Errors
/// The suite is not installed or cannot be unpacked.
pub fn unpack() -> Result<PathBuf, String> {
    let dir = process::target_dir()?.join(format!("foreign-pyverbs.{}", std::process::id()));
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let script = "cp \"$1\"/* \"$2\"/ && gunzip -f \"$2\"/*.gz";
    let why = "unpacking the suite (package rdma-core; a system that drops documentation at \
               installation has no suite)";
    output_of(Command::new("sh").args(["-c", script, "sh", SUITE]).arg(&dir), why)?;
    Ok(dir)
}

/// Runs the named tests on the device. After a test that hangs or crashes the rest goes on.
///
/// # Errors
/// The suite cannot be started at all.
pub fn run(suite: &Path, wanted: &[&str], on: &DeviceArgs) -> Result<(Report, String), String> {
    let mut report = Report::new();
    let mut log = String::new();
    let mut round = 0;
    loop {
        let rest: Vec<&str> = wanted.iter().copied().filter(|n| !report.contains_key(*n)).collect();
        if rest.is_empty() {
            return Ok((report, log));
        }
        round += 1;
        let before = report.len();
        log.push_str(&run_once(suite, &rest, on, round, &mut report)?);
        if report.len() == before {
            return Err(format!(
                "the suite ended without a result for {} and the rest:\n{log}",
                rest[0]
            ));
        }
    }
}

fn run_once(
    suite: &Path,
    rest: &[&str],
    on: &DeviceArgs,
    round: u32,
    report: &mut Report,
) -> Result<String, String> {
    let list = suite.join(format!("names.{round}"));
    let results = suite.join(format!("results.{round}"));
    std::fs::write(&list, rest.join("\n")).map_err(|e| e.to_string())?;
    std::fs::write(&results, "").map_err(|e| e.to_string())?;
    let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/pyverbs_run.py");
    // Standard input is the list, so the shell opens it: children otherwise get /dev/null.
    let mut command = Command::new("sh");
    command
        .args(["-c", "list=$1; shift; exec \"$@\" < \"$list\"", "sh"])
        .arg(&list)
        .arg(process::adverb()?)
        .args(["run", "--", PYTHON])
        .arg(&driver)
        .arg(suite)
        .arg(&results)
        .args(["--dev", &on.dev, "--port", "1", "--gid", &on.gid])
        .env("PYTHONDONTWRITEBYTECODE", "1");
    let mut child = process::start(command, format!("pyverbs suite, run {round}"))?;
    let mut seen = 0;
    let mut since = Instant::now();
    let hung = loop {
        let text = std::fs::read_to_string(&results).unwrap_or_default();
        if text.len() != seen {
            seen = text.len();
            since = Instant::now();
        }
        if child.ended() {
            break false;
        }
        if since.elapsed() > TEST_LIMIT {
            break true;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let done = child.wait(if hung { Duration::ZERO } else { TEST_LIMIT });
    let text = std::fs::read_to_string(&results).unwrap_or_default();
    absorb(&text, hung, &done.describe(), report);
    Ok(done.describe())
}

/// Adds the results of one run, with this output, to the report. The test that was started last
/// without a result hung or crashed.
pub fn absorb(text: &str, hung: bool, how: &str, report: &mut Report) {
    let mut open: Option<String> = None;
    for line in text.lines() {
        let mut f = line.splitn(3, '\t');
        let (word, name, reason) = (
            f.next().unwrap_or(""),
            f.next().unwrap_or("").to_string(),
            f.next().unwrap_or("").to_string(),
        );
        let word = match word {
            "START" => {
                open = Some(name);
                continue;
            }
            "ok" => Word::Ok,
            "skip" => Word::Skip,
            "fail" => Word::Fail,
            _ => Word::Error,
        };
        open = None;
        report.insert(name, (word, reason));
    }
    if let Some(name) = open {
        let last: Vec<&str> = how.lines().rev().take(30).collect();
        let tail = last.into_iter().rev().collect::<Vec<_>>().join("\n");
        report.insert(name, (if hung { Word::Hang } else { Word::Crash }, tail));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_have_the_known_sizes() {
        let (core, generic) = (names(CORE), names(GENERIC));
        assert_eq!(core.len(), 94);
        assert_eq!(generic.len(), 171);
        assert!(core.iter().all(|n| generic.contains(n)));
    }

    #[test]
    fn a_test_without_a_result_hung_or_crashed() {
        let text = "START\ta\t\nok\ta\t\nSTART\tb\t\nskip\tb\tno device\nSTART\tc\t\n";
        for (hung, word) in [(true, Word::Hang), (false, Word::Crash)] {
            let mut report = Report::new();
            absorb(text, hung, "how", &mut report);
            assert_eq!(report["a"].0, Word::Ok);
            assert_eq!(report["b"], (Word::Skip, "no device".to_string()));
            assert_eq!(report["c"].0, word);
        }
    }
}
