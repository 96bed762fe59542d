//! The result of a hunt in formats that other tools read: JUnit for test reports, SARIF for code
//! scanning.
use super::attempt::Verdict;
use super::{Args, Finding, HuntResult, report};
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
    let failed = |found: &Finding| (found.attempt.what(), found.attempt.verdict.code().into());
    let test = Test {
        name: line(&args.command),
        said: end.text.clone(),
        failure: end.finding.as_ref().map(failed),
    };
    results::junit(TOOL, &[test], took)
}

/// A SARIF log with a single run of a single tool.
pub fn sarif(args: &Args, end: &HuntResult) -> Value {
    let found: Vec<_> = end.finding.iter().map(|found| result(args, found, &end.text)).collect();
    results::sarif(TOOL, &RULES, &format!("{TOOL} -- {}", line(&args.command)), &found)
}

fn result(args: &Args, found: &Finding, text: &str) -> Value {
    let Finding { attempt, schedule, met } = found;
    let cause = examination::causes(&attempt.reports).next();
    let causes = cause.iter().flat_map(|told| &told.places).map(|(what, at)| location(at, what));
    let places = report::shown(schedule, attempt)
        .iter()
        .filter_map(|entry| Some((entry, met.iter().find(|m| m.site == entry.site)?)))
        .map(|(entry, m)| {
            location(&m.words, &format!("chosen: {}", entry.choice.words(entry.site.call)))
        });
    let mut properties = json!({ "output": text, "adverbSchedule": schedule.to_string() });
    if !matches!(attempt.verdict, Verdict::Fine) && !schedule.is_empty() {
        properties["replay"] = json!(format!("adverb run --replay {}", args.out.display()));
    }
    let code = attempt.verdict.code();
    let what = match cause {
        Some(told) => format!("{}: {}", attempt.what(), told.text),
        None => attempt.what(),
    };
    results::result(&RULES, code, "error", &what, causes.chain(places).collect(), properties)
}
