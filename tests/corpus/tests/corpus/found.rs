//! `adverb hunt` over the corpus. Each wrong program is found, and the report names the cause and a
//! line. The right programs are silent. A table shows what was found and how long each search took.

use crate::hunt::hunt;
use adverb_corpus::{Finder, MISTAKES, Mistake, build, names_line, programs};
use adverb_foreign::suite::{Case, by_length, case, short};
use adverb_foreign::{Verdict, require};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Time limit of a search, in seconds. Risks are reported at the end of a search only.
const SECONDS: u64 = 60;
/// The same for programs whose mistake is a risk that the ledgers see in each run. A search
/// mentions the risk at its end.
const RISK_SECONDS: u64 = 8;
/// The wrong programs of the short run.
const SHORT: &[&str] = &[
    "loop-swapped",
    "loop-one-poll",
    "loop-never-acks",
    "solicited",
    "dereg_early",
    "flag_in_memory",
    "fork_pages",
    "late_cm_ack",
    "lost_on_error",
    "lost_signal",
    "plain_flag",
    "read_sent_on",
    "reset_orphans",
    "read_tail",
    "send_first",
    "short_limit",
    "srq_dry",
    "stale_flush",
    "two_pairs",
    "unchecked_mr",
    "unflagged_credit",
];
/// The right programs of the short run.
const SHORT_RIGHT: &[&str] = &["loop", "lost_on_error", "read_released", "srq_dry", "stale_flush"];

/// Lines of the table: name, seconds, cause.
static TABLE: Mutex<Vec<(String, Duration, String)>> = Mutex::new(Vec::new());

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for mistake in MISTAKES {
        let name = mistake.name();
        if !short() || SHORT.contains(&name.as_str()) {
            let own = case(format!("HUN-6/{name}"), move || wrong(mistake));
            cases.push(own.ignored_if(mistake.open));
        }
    }
    for program in programs() {
        if !short() || SHORT_RIGHT.contains(&program) {
            cases.push(case(format!("HUN-5/silent/{program}"), move || silent(program)));
        }
    }
    cases
}

fn wrong(mistake: &'static Mistake) -> Verdict {
    let name = mistake.name();
    let begun = Instant::now();
    let is_seen_at_once = mistake.risk && mistake.finders.contains(&Finder::Check);
    let seconds = if is_seen_at_once { RISK_SECONDS } else { SECONDS };
    let out = hunt(&build::wrong(mistake)?, &name, seconds)?;
    let took = begun.elapsed();
    // A risk may also show as a failure.
    let found = out.code() == Some(1) || mistake.risk && matches!(out.code(), Some(0 | 3));
    require!(found, "it was not found: {}", out.describe());
    let causes = ["cause:", "rule:", "note:", "counts on:"];
    let cause = causes.iter().find_map(|label| {
        let mut lines = out.text.lines().map(str::trim_start);
        lines.find_map(|line| line.strip_prefix(label)).map(str::trim_start)
    });
    let Some(cause) = cause else { return Err(format!("no cause: {}", out.describe())) };
    TABLE.lock().map_err(|e| e.to_string())?.push((name, took, cause.to_owned()));
    let line = format!("{}.c:{}", mistake.program, mistake.line_number()?);
    let any = format!("{}.c:", mistake.program);
    let named =
        if mistake.elsewhere { out.text.contains(&any) } else { names_line(&out.text, &line) };
    require!(named, "{line} is not named: {}", out.describe());
    // HUN-18: the last calls before the failure.
    let picture = out.text.contains("  before:  -") || out.code() != Some(1);
    require!(picture, "no calls before the failure: {}", out.describe());
    let has = |word: &&str| out.text.contains(*word);
    require!(mistake.words.iter().any(has), "none of {:?}: {}", mistake.words, out.describe());
    Ok(())
}

fn silent(program: &'static str) -> Verdict {
    let out = hunt(&build::right(program)?, &format!("{program}.right"), by_length(8, 4))?;
    // The time may be too short for every single choice.
    out.require(matches!(out.code(), Some(0 | 3)))?;
    let silent = out.text.contains("nothing found in ") && !out.text.contains("note:");
    out.require(silent)?;
    let risks = MISTAKES.iter().filter(|m| m.program == program && m.risk);
    let mut words = risks.flat_map(|m| m.words);
    out.require(!words.any(|word| out.text.contains(word)))
}

pub fn print_table() {
    let Ok(mut table) = TABLE.lock() else { return };
    table.sort_by_key(|(_, took, _)| *took);
    for (name, took, cause) in table.iter() {
        let cause: String = cause.chars().take(100).collect();
        println!("{name:18} {:5.1} s  {cause}", took.as_secs_f64());
    }
    if let Some((_, median, _)) = table.get(table.len() / 2) {
        println!("{} wrong programs found; the median search took {median:.1?}", table.len());
    }
}
