//! Lists of skipped tests, each with a reason: lines `name: reason`. A name contains no colon
//! followed by a blank.

use adverb_foreign::suite::{Case, case_or_skip};
use libtest_mimic::Completion;

/// Names and reasons of a list. Blank lines and lines that begin with `#` are ignored.
pub fn parse(list: &str) -> Vec<(&str, &str)> {
    list.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .map(|l| l.split_once(": ").unwrap_or((l, "")))
        .collect()
}

/// Prints what a suite leaves out, by its list.
pub fn print(suite: &str, list: &str) {
    for (name, reason) in parse(list) {
        println!("{suite} leaves out {name}: {reason}");
    }
}

/// A case that cannot run on this machine: ignored, with the reason.
pub fn ignored(name: impl Into<String>, reason: &'static str) -> Case {
    case_or_skip(name, move || Ok(Completion::ignored_with(reason)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_gives_names_and_reasons() {
        let list = "# why\n\na::b: has no ground\nc.d/0: x: y\n";
        assert_eq!(parse(list), [("a::b", "has no ground"), ("c.d/0", "x: y")]);
    }
}
