//! What a command found, in the forms that other tools read: JUnit for test reports, SARIF for code
//! scanning.
pub mod source;
#[cfg(test)]
pub mod tests;

use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// Where the form of SARIF is defined.
const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// A test of a test report.
#[derive(Clone, Debug, Default)]
pub struct Test {
    pub name: String,
    /// What is said of it.
    pub said: String,
    /// In a line why it failed, and the kind of failure.
    pub failure: Option<(String, String)>,
}

/// A test report with one suite; `tool` is its name.
pub fn junit(tool: &str, tests: &[Test], took: Duration) -> String {
    let (all, time) = (tests.len(), took.as_secs_f64());
    let failures = tests.iter().filter(|test| test.failure.is_some()).count();
    let counts =
        format!("tests=\"{all}\" failures=\"{failures}\" errors=\"0\" skipped=\"0\" time=\"{time:.3}\"");
    let class = xml(&tool.replace(' ', "."));
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(text, "<testsuites {counts}>\n  <testsuite name=\"{}\" {counts}>", xml(tool));
    // How long one of several tests took is not known.
    let own = if all == 1 { format!(" time=\"{time:.3}\"") } else { String::new() };
    for Test { name, said, failure } in tests {
        let (name, said) = (xml(name), xml(said));
        let _ = writeln!(text, "    <testcase classname=\"{class}\" name=\"{name}\"{own}>");
        let _ = match failure {
            Some((message, kind)) => {
                let (message, kind) = (xml(message), xml(kind));
                writeln!(text, "      <failure message=\"{message}\" type=\"{kind}\">{said}</failure>")
            }
            None => writeln!(text, "      <system-out>{said}</system-out>"),
        };
        text += "    </testcase>\n";
    }
    text + "  </testsuite>\n</testsuites>\n"
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

/// A log of one run of one tool, whose rules are ids with a sentence each.
pub fn sarif(tool: &str, rules: &[(&str, &str)], command: &str, results: &[Value]) -> Value {
    let rule = |(id, text): &(&str, &str)| json!({ "id": id, "shortDescription": { "text": text } });
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

/// One result: the rule, the level, a sentence, and its places, of which the first is the one that
/// matters.
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

/// Writes a file; says which one cannot be written.
pub fn put(path: &Path, text: String) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// A place: the line of the source if it is known, else the name of the code.
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
