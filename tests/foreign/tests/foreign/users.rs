//! A process changes its user after it has opened a device. It works with its peers on the host, or
//! fails at once with both users named (TRU-1): cases of `c/users.c`. Only root can change its
//! user. Without root the cases are ignored, with the reason.

use std::time::Duration;

use adverb_foreign::cases::{ok_or_skipped, rig};
use adverb_foreign::suite::{Case, case_or_skip};
use libtest_mimic::Completion;

const LIMIT: Duration = Duration::from_secs(60);
const NAMED: [&str; 3] = ["adverb: error: ", "user 0 (`id -un 0`)", "user 2001 (`id -un 2001`)"];

/// A case, its paths, whether its processes work at the end, and how many of them are refused. The
/// last case needs shared memory, because only a greeting shows at once that the peer has changed.
const CASES: [(&str, &[&str], bool, usize); 6] = [
    ("before_the_first", &["local", "wire"], true, 0),
    ("after_the_connection", &["local"], true, 0),
    ("after_the_first", &["local", "wire"], false, 2),
    ("for_a_while", &["local", "wire"], true, 2),
    ("in_a_thread", &["local", "wire"], true, 2),
    ("of_the_peer", &["local"], false, 1),
];

pub fn cases() -> Vec<Case> {
    let cases = CASES.into_iter().flat_map(|(name, paths, works, refused)| {
        paths.iter().map(move |path| {
            case_or_skip(format!("{path}/{name}"), move || one(name, path, works, refused))
        })
    });
    cases.collect()
}

fn one(name: &str, path: &str, works: bool, refused: usize) -> Result<Completion, String> {
    let out = rig("users", &[], &[name])?.env("ADVERB_PATH", path).run(LIMIT)?;
    let completion = ok_or_skipped(&out, &format!("ok {name}"))?;
    if matches!(completion, Completion::Ignored { .. }) {
        return Ok(completion);
    }
    let count = |what: &str| out.text.lines().filter(|line| line.contains(what)).count();
    out.require(count("20 operations") == if works { 2 } else { 0 })?;
    out.require(count(": refused") == refused)?;
    let is_named = out.text.lines().any(|line| NAMED.iter().all(|word| line.contains(word)));
    out.require(is_named == (refused > 0))?;
    Ok(Completion::Completed)
}
