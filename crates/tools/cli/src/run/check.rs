//! The variables that ask for a check, and the reports of all processes in formats that other tools
//! read.
use super::faults::readable;
use super::{beside, random};
use crate::out::at;
use crate::results::source::{line, line_of};
use crate::results::{Test, junit, location, put, result, sarif};
use adverb_check::{Code, Suppressions, Told};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The tool's name in these formats.
const TOOL: &str = "adverb check";

/// The variables to set. If the program could not read the suppression file, the error is reported
/// before the program starts.
pub fn variables(
    suppress: Option<&Path>,
    exit: Option<u8>,
) -> Result<Vec<(&'static str, OsString)>, String> {
    let mut all = vec![("ADVERB_CHECK", "1".into())];
    // A child does not inherit pages mapped by peers, so a check could report nothing about forks.
    if std::env::var_os("ADVERB_ADOPT").is_none() {
        all.push(("ADVERB_ADOPT", "off".into()));
    }
    if let Some(file) = suppress {
        let (name, path) = suppression(file)?;
        all.push((name, path.into()));
    }
    if let Some(status) = exit {
        all.push(("ADVERB_CHECK_EXIT", status.to_string().into()));
    }
    Ok(all)
}

/// The variable with the file of unwanted reports. Fails if the program could not read the file.
pub fn suppression(file: &Path) -> Result<(&'static str, PathBuf), String> {
    Ok(("ADVERB_CHECK_SUPPRESS", readable::<Suppressions>(file)?))
}

/// The files for the reports.
pub struct Reports {
    junit: Option<PathBuf>,
    sarif: Option<PathBuf>,
    /// The file to which the processes append their reports.
    parts: PathBuf,
    begun: Instant,
}

impl Reports {
    /// Creates the files, if any are requested. Errors are reported before the program starts.
    pub fn begin(junit: Option<&Path>, sarif: Option<&Path>) -> Result<Option<Reports>, String> {
        let Some(first) = junit.or(sarif) else { return Ok(None) };
        let at = |path: &Path, e: &io::Error| {
            format!("{}: no reports can be written there: {e}", path.display())
        };
        for path in [junit, sarif].into_iter().flatten() {
            OpenOptions::new().append(true).create(true).open(path).map_err(|e| at(path, &e))?;
        }
        let first = std::path::absolute(first).map_err(|e| at(first, &e))?;
        let parts = beside(&first, &format!(".{:016x}.parts", random()?));
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&parts);
        made.map_err(|e| at(&parts, &e))?;
        let [junit, sarif] = [junit, sarif].map(|path| path.map(Path::to_owned));
        Ok(Some(Reports { junit, sarif, parts, begun: Instant::now() }))
    }

    /// The variable with the file for the program's reports.
    pub fn variable(&self) -> (&'static str, OsString) {
        ("ADVERB_CHECK_REPORTS", self.parts.clone().into())
    }

    /// Writes the files after the program has ended.
    pub fn end(&self, command: &[OsString]) -> Result<(), String> {
        let text = fs::read(&self.parts).map_err(at(&self.parts))?;
        let text = String::from_utf8_lossy(&text);
        // A process that was ended in the middle of a line has left an incomplete report. It is
        // skipped.
        let found = together(text.lines().filter_map(|line| line.parse().ok()));
        let took = self.begun.elapsed();
        let first = self.junit.as_ref().map_or(Ok(()), |path| put(path, as_junit(&found, took)));
        let second = self
            .sarif
            .as_ref()
            .map_or(Ok(()), |path| put(path, format!("{:#}\n", as_sarif(&found, command))));
        let _ = fs::remove_file(&self.parts);
        first.and(second)
    }

    /// Removes the files after a failed start of the program.
    pub fn forget(&self) {
        let _ = fs::remove_file(&self.parts);
        for path in [&self.junit, &self.sarif].into_iter().flatten() {
            if fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 0) {
                let _ = fs::remove_file(path);
            }
        }
    }
}

/// A mistake in one place of the program, and the processes with reports of the mistake.
struct Found {
    told: Told,
    processes: Vec<u32>,
}

/// Merges the reports of all processes. Reports of several processes about one place become a
/// single report with the first text.
fn together(all: impl Iterator<Item = Told>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for told in all {
        let alike = |of: &&mut Found| {
            let place = |told: &Told| told.places.first().map(|(_, at)| at.clone());
            let same_text = told.places.is_empty() && of.told.text != told.text;
            of.told.code == told.code && place(&of.told) == place(&told) && !same_text
        };
        match found.iter_mut().find(alike) {
            Some(of) if of.told.state && !told.state => {
                *of = Found { processes: vec![told.process], told };
            }
            Some(of) if of.processes.contains(&told.process) => {}
            Some(of) => of.processes.push(told.process),
            None => found.push(Found { processes: vec![told.process], told }),
        }
    }
    found
}

/// A test report with a test for each code. A test fails if there is a report with this code about
/// more than the state of a program that has not failed.
fn as_junit(found: &[Found], took: Duration) -> String {
    let test = |code: &Code| {
        let own: Vec<_> = found.iter().filter(|of| of.told.code == *code).collect();
        let said: String = own.iter().map(|of| in_words(of)).collect();
        let failure = own.iter().find(|of| !of.told.state).map(|first| {
            let place = first.told.places.first().map(|(_, at)| format!("{}: ", line_of(at)));
            (place.unwrap_or_default() + &first.told.text, code.name().to_owned())
        });
        let said = if own.is_empty() { format!("not seen: {}", code.meaning()) } else { said };
        Test { name: code.name().into(), said, failure, skipped: None }
    };
    junit(TOOL, &Code::ALL.iter().map(test).collect::<Vec<_>>(), took)
}

fn in_words(of: &Found) -> String {
    let processes: Vec<_> = of.processes.iter().map(ToString::to_string).collect();
    let mut text = format!("{}\n", of.told.text);
    of.told.places.iter().for_each(|(what, at)| text += &format!("  {what}: {at}\n"));
    text + &format!("  process: {}\n", processes.join(", "))
}

/// A SARIF log of one run, with a result for each report.
fn as_sarif(found: &[Found], command: &[OsString]) -> Value {
    let rules: Vec<_> = Code::ALL.iter().map(|code| (code.name(), code.meaning())).collect();
    let one = |of: &Found| {
        let places = of.told.places.iter().map(|(what, at)| location(at, what)).collect();
        let properties = json!({ "processes": of.processes });
        let level = if of.told.state { "note" } else { "warning" };
        result(&rules, of.told.code.name(), level, &of.told.text, places, properties)
    };
    let results: Vec<_> = found.iter().map(one).collect();
    sarif(TOOL, &rules, &format!("adverb run --check -- {}", line(command)), &results)
}

#[cfg(test)]
mod tests;
