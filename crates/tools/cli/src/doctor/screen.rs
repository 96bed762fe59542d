//! Findings as text, in lines of at most 80 columns.
use super::finding::{Finding, State};
use crate::out::wrap;
use std::fmt::Write;

const COLUMNS: usize = 80;
/// Width of the state and the name, which stand before the text.
const INDENT: usize = 18;

pub fn text(all: &[Finding]) -> String {
    let mut text = String::new();
    for finding in all {
        let head = format!("{:4}  {:11} ", finding.state.word(), finding.what);
        put(&mut text, &head, &finding.found);
        if let Some(remedy) = &finding.remedy {
            put(&mut text, &format!("{:>17} ", "->"), remedy);
        }
    }
    let count = |state| all.iter().filter(|finding| finding.state == state).count();
    let (warnings, failures) = (count(State::Warn), count(State::Fail));
    let _ = match (failures, warnings) {
        (0, 0) => writeln!(text, "\nAll is well: `adverb demo` shows the device at work."),
        (0, _) => {
            writeln!(text, "\nPrograms run; {warnings} of {} checks have a warning.", all.len())
        }
        _ => writeln!(text, "\n{failures} of {} checks failed.", all.len()),
    };
    text
}

/// The words of a text. The words of a command stay together, so that the command can be copied.
fn words_of(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut open = false;
    for word in text.split_whitespace() {
        match all.last_mut().filter(|_| open) {
            Some(command) => *command += &format!(" {word}"),
            None => all.push(word.to_owned()),
        }
        open ^= word.matches('`').count() % 2 == 1;
    }
    all
}

/// Writes words behind a head. Further lines begin below the first word.
fn put(text: &mut String, head: &str, words: &str) {
    let indent = " ".repeat(INDENT);
    for line in wrap(words_of(words), &format!("{head:INDENT$}"), &indent, COLUMNS) {
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_stay_in_one_line() {
        let words = words_of("do `ip link set lo up`, then `true` or  `a b`");
        assert_eq!(words, ["do", "`ip link set lo up`,", "then", "`true`", "or", "`a b`"]);
    }

    /// DOC-1: the text fits on a screen of 80 columns.
    #[test]
    fn lines_are_short_and_have_every_word() {
        let long = "many words that say what was found and go on for some time ".repeat(4);
        let all = [
            Finding::ok("interface", long.clone()),
            Finding::warn("limit", "64 descriptors", long.clone()),
            Finding::fail("port", "taken", "ask"),
        ];
        let text = text(&all);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let shown = words(&text).join(" ");
        assert_eq!(shown.matches(&words(&long).join(" ")).count(), 2, "{text}");
        assert!(text.contains("FAIL  port        taken\n               -> ask\n"), "{text}");
        assert!(text.ends_with("1 of 3 checks failed.\n"), "{text}");
    }
}
