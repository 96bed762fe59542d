//! The result of a hunt in formats that other tools read: JUnit for test reports, SARIF for code
//! scanning.
use super::attempt::Verdict;
use super::{Args, Finding, HuntEnd, HuntResult, report};
use crate::examination;
use crate::results::source::line;
use crate::results::{self, Test, location, put};
use serde_json::{Value, json};
use std::time::Duration;

/// The tool's name in both formats.
const TOOL: &str = "adverb hunt";
/// The kinds of findings with their descriptions.
const RULES: [(&str, &str); 4] = [
    ("hang", "The program hangs under a choice of moments that the rules of verbs allow"),
    ("crash", "A signal kills the program under a choice of moments that the rules of verbs allow"),
    ("status", "The program fails under a choice of moments that the rules of verbs allow"),
    ("report", "The program continues by luck: the device has reported a lost wake-up"),
];

/// Writes the requested files.
pub fn write(args: &Args, end: &HuntResult, took: Duration) -> Result<(), String> {
    if let Some(path) = &args.junit {
        put(path, junit(args, end, took))?;
    }
    if let Some(path) = &args.sarif {
        put(path, format!("{:#}\n", sarif(args, end)))?;
    }
    Ok(())
}

/// A test report with a single test: the hunt.
pub fn junit(args: &Args, end: &HuntResult, took: Duration) -> String {
    let failed = |found: &Finding| (message(found), found.attempt.verdict.code().into());
    let is_found = end.outcome == HuntEnd::Found;
    let skipped = match end.outcome {
        HuntEnd::Nothing | HuntEnd::Found => None,
        HuntEnd::Doubtful => Some("a failure may be chance"),
        HuntEnd::TooShort => Some("the time was too short for every single choice"),
        HuntEnd::NoChoice => Some("the program makes no call with a choice"),
    };
    let test = Test {
        name: line(&args.command),
        said: end.text.clone(),
        failure: end.finding.as_ref().filter(|_| is_found).map(failed),
        skipped: skipped.map(str::to_owned),
    };
    results::junit(TOOL, &[test], took)
}

/// A SARIF log with a single run of a single tool.
pub fn sarif(args: &Args, end: &HuntResult) -> Value {
    let is_sure = end.outcome == HuntEnd::Found;
    let found: Vec<_> =
        end.finding.iter().map(|found| result(args, found, is_sure, &end.text)).collect();
    results::sarif(TOOL, &RULES, &format!("{TOOL} -- {}", line(&args.command)), &found)
}

/// What failed, with the first cause.
fn message(found: &Finding) -> String {
    let what = found.attempt.what();
    match examination::causes(&found.attempt.reports).next() {
        // A report of the check is its own cause.
        Some(told) if !what.contains(&told.text) => format!("{what}; {}", told.text),
        _ => what,
    }
}

fn result(args: &Args, found: &Finding, is_sure: bool, text: &str) -> Value {
    let Finding { attempt, schedule, met } = found;
    let chosen = report::shown(schedule, attempt)
        .iter()
        .filter_map(|entry| Some((entry, met.iter().find(|m| m.site == entry.site)?)))
        .map(|(entry, m)| {
            location(&m.words, &format!("chosen: {}", entry.choice.words(entry.site.call)))
        });
    let told = examination::causes(&attempt.reports).next();
    let cause = told.into_iter().flat_map(examination::places).map(|(what, at)| location(at, what));
    // As in the text: a choice says more about a failure than the state of the threads.
    let places = match schedule.is_empty() || examination::is_known(&attempt.reports) {
        true => cause.chain(chosen).collect(),
        false => chosen.chain(cause).collect(),
    };
    let mut properties = json!({ "output": text, "adverbSchedule": schedule.to_string() });
    if !matches!(attempt.verdict, Verdict::Fine) && !schedule.is_empty() {
        properties["replay"] = json!(format!("adverb run --replay {}", args.out.display()));
    }
    let code = attempt.verdict.code();
    let level = if is_sure { "error" } else { "note" };
    results::result(&RULES, code, level, &message(found), places, properties)
}
