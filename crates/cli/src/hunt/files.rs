//! What a hunt found, in the forms that other tools read: JUnit for test reports, SARIF for code
//! scanning.
use super::attempt::Verdict;
use super::{Args, End, Finding, report};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Where the form of SARIF is defined.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";
/// The kinds of findings, and what each is.
const RULES: [(&str, &str); 4] = [
    ("hang", "The program hangs under a choice of moments that the rules of verbs allow"),
    ("crash", "The program dies of a signal under a choice of moments that the rules of verbs allow"),
    ("status", "The program fails under a choice of moments that the rules of verbs allow"),
    ("report", "The program goes on by luck: the device has reported a lost wake-up"),
];

/// Writes the files that were asked for.
pub fn write(args: &Args, end: &End, took: Duration) -> Result<(), String> {
    let put = |path: &Path, text: String| {
        std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
    };
    if let Some(path) = &args.junit {
        put(path, junit(args, end, took))?;
    }
    if let Some(path) = &args.sarif {
        put(path, format!("{:#}\n", sarif(args, end)))?;
    }
    Ok(())
}

/// A test report with one test, which is the hunt.
pub fn junit(args: &Args, end: &End, took: Duration) -> String {
    let name = xml(&report::line(&args.command));
    let (failures, time) = (u32::from(end.finding.is_some()), took.as_secs_f64());
    let counts = format!("tests=\"1\" failures=\"{failures}\" errors=\"0\" skipped=\"0\" time=\"{time:.3}\"");
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(text, "<testsuites {counts}>\n  <testsuite name=\"adverb hunt\" {counts}>");
    let _ = writeln!(text, "    <testcase classname=\"adverb.hunt\" name=\"{name}\" time=\"{time:.3}\">");
    let said = xml(&end.text);
    let _ = match &end.finding {
        Some(Finding { attempt, .. }) => {
            let (message, kind) = (xml(&attempt.what()), attempt.verdict.code());
            writeln!(text, "      <failure message=\"{message}\" type=\"{kind}\">{said}</failure>")
        }
        None => writeln!(text, "      <system-out>{said}</system-out>"),
    };
    text + "    </testcase>\n  </testsuite>\n</testsuites>\n"
}

/// Text as XML has it, in an attribute, too; characters that XML cannot have are `?`.
fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// A log of one run of one tool.
pub fn sarif(args: &Args, end: &End) -> Value {
    let rules = RULES.map(|(id, text)| json!({ "id": id, "shortDescription": { "text": text } }));
    let results: Vec<_> = end.finding.iter().map(|found| result(args, found, &end.text)).collect();
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "adverb hunt",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            } },
            "invocations": [{
                "executionSuccessful": true,
                "commandLine": format!("adverb hunt -- {}", report::line(&args.command)),
            }],
            "results": results,
        }],
    })
}

fn result(args: &Args, found: &Finding, text: &str) -> Value {
    let Finding { attempt, schedule, met } = found;
    let places = report::shown(schedule, attempt)
        .iter()
        .filter_map(|entry| Some((entry, met.iter().find(|m| m.site == entry.site)?)))
        .map(|(entry, m)| location(&m.words, &format!("chosen: {}", entry.choice.words(entry.site.call))));
    let mut places: Vec<_> = places.collect();
    let first = (!places.is_empty()).then(|| places.remove(0));
    let mut properties = json!({ "output": text, "adverbSchedule": schedule.to_string() });
    if !matches!(attempt.verdict, Verdict::Fine) && !schedule.is_empty() {
        properties["replay"] = json!(format!("adverb run --replay {}", args.out.display()));
    }
    let mut result = json!({
        "ruleId": attempt.verdict.code(),
        "ruleIndex": RULES.iter().position(|(id, _)| *id == attempt.verdict.code()),
        "level": "error",
        "message": { "text": attempt.what() },
        "locations": first.into_iter().collect::<Vec<_>>(),
        "properties": properties,
    });
    if !places.is_empty() {
        for (at, place) in places.iter_mut().enumerate() {
            place["id"] = json!(at + 1);
        }
        result["relatedLocations"] = places.into();
    }
    result
}

/// A place: the line of the source if it is known, else the name of the code.
fn location(words: &str, message: &str) -> Value {
    match report::source_of(words) {
        Some(line) => json!({
            "physicalLocation": {
                "artifactLocation": { "uri": uri(&line.path) },
                "region": { "startLine": line.number.max(1) },
            },
            "logicalLocations": [{ "name": line.function, "kind": "function" }],
            "message": { "text": message },
        }),
        None => json!({
            "logicalLocations": [{ "name": report::line_of(words) }],
            "message": { "text": message },
        }),
    }
}

/// A file in the working directory by its way from there, as code scanning wants it.
fn uri(path: &str) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let inside = Path::new(path).strip_prefix(&here).ok().and_then(Path::to_str);
    let (head, path) = match inside {
        Some(inside) => ("", inside),
        None if path.starts_with('/') => ("file://", path),
        None => ("", path),
    };
    let mut text = head.to_owned();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' | b'+' => {
                text.push(byte.into());
            }
            byte => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
    }
    text
}
