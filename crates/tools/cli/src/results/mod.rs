//! The results of a command in formats that other tools read: JUnit for test reports, SARIF for
//! code scanning.
pub mod source;
#[cfg(test)]
pub mod tests;

use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// The schema of SARIF.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// A test of a test report.
#[derive(Clone, Debug, Default)]
pub struct Test {
    pub name: String,
    /// The output of the test.
    pub said: String,
    /// Why the test failed, in a single line, and the kind of failure.
    pub failure: Option<(String, String)>,
    /// Why the test says nothing, in a single line.
    pub skipped: Option<String>,
}

/// A JUnit report with a single suite, which has the name `tool`.
pub fn junit(tool: &str, tests: &[Test], took: Duration) -> String {
    let (all, time) = (tests.len(), took.as_secs_f64());
    let failures = tests.iter().filter(|test| test.failure.is_some()).count();
    let skipped = tests.iter().filter(|test| test.skipped.is_some()).count();
    let counts = format!(
        "tests=\"{all}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\" time=\"{time:.3}\""
    );
    let class = xml(&tool.replace(' ', "."));
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(text, "<testsuites {counts}>\n  <testsuite name=\"{}\" {counts}>", xml(tool));
    // With several tests, the time of each test is not known.
    let own = if all == 1 { format!(" time=\"{time:.3}\"") } else { String::new() };
    for Test { name, said, failure, skipped } in tests {
        let (name, said) = (xml(name), xml(said));
        let _ = writeln!(text, "    <testcase classname=\"{class}\" name=\"{name}\"{own}>");
        if let Some(why) = skipped {
            let _ = writeln!(text, "      <skipped message=\"{}\"></skipped>", xml(why));
        }
        let _ = match failure {
            Some((message, kind)) => {
                let (message, kind) = (xml(message), xml(kind));
                writeln!(
                    text,
                    "      <failure message=\"{message}\" type=\"{kind}\">{said}</failure>"
                )
            }
            None => writeln!(text, "      <system-out>{said}</system-out>"),
        };
        text += "    </testcase>\n";
    }
    text + "  </testsuite>\n</testsuites>\n"
}

/// Escapes text for XML, also for attributes. Characters that XML does not allow become `?`.
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

/// A SARIF log of a single run of a tool. A rule is an id with a sentence.
pub fn sarif(tool: &str, rules: &[(&str, &str)], command: &str, results: &[Value]) -> Value {
    let rule =
        |(id, text): &(&str, &str)| json!({ "id": id, "shortDescription": { "text": text } });
    json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": tool,
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules.iter().map(rule).collect::<Vec<_>>(),
            } },
            "invocations": [{
                "executionSuccessful": true,
                "commandLine": command,
            }],
            "results": results,
        }],
    })
}

/// A result: the rule, the level, a sentence, and the places. The first place is the main location.
pub fn result(
    rules: &[(&str, &str)],
    rule: &str,
    level: &str,
    message: &str,
    mut places: Vec<Value>,
    properties: Value,
) -> Value {
    let first = (!places.is_empty()).then(|| places.remove(0));
    let mut result = json!({
        "ruleId": rule,
        "ruleIndex": rules.iter().position(|(id, _)| *id == rule),
        "level": level,
        "message": { "text": message },
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

/// Writes a file. An error names the file.
pub fn put(path: &Path, text: String) -> Result<(), String> {
    std::fs::write(path, text).map_err(crate::out::at(path))
}

/// A place: the line of the source if known, else the name of the code.
pub fn location(words: &str, message: &str) -> Value {
    match source::source_of(words) {
        Some(line) => json!({
            "physicalLocation": {
                "artifactLocation": { "uri": uri(&line.path) },
                "region": { "startLine": line.number.max(1) },
            },
            "logicalLocations": [{ "name": line.function, "kind": "function" }],
            "message": { "text": message },
        }),
        None => json!({
            "logicalLocations": [{ "name": source::line_of(words) }],
            "message": { "text": message },
        }),
    }
}

/// The URI of a file. For a file in the working directory, the path relative to that directory, as
/// code scanning requires.
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
