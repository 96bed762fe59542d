//! What a hunt says.
use super::attempt::{Attempt, LOST, Met, Verdict};
use super::{Args, Found};
use crate::out::outln;
use adverb_choice::{Call, Choice, Entry, Schedule, Site, Which};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// Lines shown of what the program and the device wrote.
const LINES: usize = 6;
/// Choices shown.
const SHOWN: usize = 4;

/// The program's line, or as near to it as its file tells: not that of the header's inline
/// function.
pub fn line_of(words: &str) -> String {
    let mut frames = words.split(" in ");
    let place = frames.next().unwrap_or(words);
    let mut best = None;
    for frame in frames {
        let (function, line) = frame.split_once(", ").map_or((frame, None), |(f, l)| (f, Some(l)));
        match line {
            Some(line) if !line.starts_with("verbs.h:") => return format!("{line} in {function}"),
            None if best.is_none() => best = Some(format!("{place} in {function}")),
            _ => {}
        }
    }
    best.unwrap_or_else(|| place.to_owned())
}

fn name_of(site: &Site, met: &[Met]) -> String {
    met.iter().find(|m| m.site == *site).map_or_else(|| site.place.clone(), |m| line_of(&m.words))
}

/// What a choice means, in words.
pub fn words_of(call: Call, choice: Choice) -> &'static str {
    match (call, choice) {
        (Call::Arm, Choice::Before) => {
            "everything on its way came between the last poll and this arm, and nothing after it"
        }
        (Call::Arm, _) => "everything on its way came between this arm and the poll after it",
        (Call::Poll, Choice::Hold) => {
            "completions after this empty poll came late, all at once, when the program slept"
        }
        (Call::Poll, Choice::Drip) => "completions after this empty poll came one at a time",
        (Call::Poll, _) => "everything on its way came just after this poll had found the queue empty",
        (Call::Error, _) => "fields of a failed completion that are undefined had random values",
        (Call::Post, Choice::Full) => "places in the send queue were free only when completions were polled",
        (Call::Post, _) => "the request, and what it led to, was done before this call returned",
        (Call::Event, Choice::Before) => "several events were queued before this call read the first",
        (Call::Event, _) => "everything on its way came just after this event was read",
    }
}

pub fn begins(first: &Attempt, singles: usize) {
    let places: BTreeSet<_> = first.sites.iter().map(|m| &m.site).collect();
    outln!(
        "adverb hunt: the program works in {:.1?} with {} places of choice; {singles} single choices, then pairs, then seeds",
        first.took,
        places.len()
    );
}

pub fn fails_alone(args: &Args, first: &Attempt) {
    outln!("adverb hunt: found without any choice: {}", first.verdict);
    polls_if_lost(first, &first.sites);
    said(first);
    outln!("  replay:  adverb run -- {}", line(args));
}

pub fn nothing(args: &Args, runs: usize, took: Duration, once: &[String]) {
    outln!("adverb hunt: nothing found in {runs} runs, {took:.0?} (seeds from {})", args.seed);
    for what in once {
        outln!("  once, and not again: {what}");
    }
}

/// The file that replays it.
pub fn file(args: &Args, found: &Found) -> String {
    let text = found.schedule.to_string();
    let (head, rest) = text.split_once('\n').unwrap_or((&text, ""));
    format!(
        "{head}\n# of: {}\n# found: {}\n{rest}",
        one_line(&line(args)),
        one_line(&found.attempt.verdict.to_string())
    )
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

pub fn found(args: &Args, found: &Found, met: &[Met]) {
    let Found { schedule, attempt, again, run, after } = found;
    outln!("adverb hunt: found in run {run}, after {after:.1?}: {}", attempt.verdict);
    chosen(schedule, attempt, met);
    said(attempt);
    outln!("  again:   in {} of {} runs", again.0, again.1);
    outln!("  replay:  adverb run --replay {} -- {}", args.out.display(), line(args));
}

/// Where, and what was chosen.
fn chosen(schedule: &Schedule, attempt: &Attempt, met: &[Met]) {
    if schedule.is_empty() {
        outln!("  chosen:  nothing, it fails by itself now and then");
        polls_if_lost(attempt, met);
        return;
    }
    let entries = if schedule.entries.is_empty() { &attempt.made } else { &schedule.entries };
    for entry in entries.iter().take(SHOWN) {
        let Entry { site, count, choice, .. } = entry;
        let when = match count {
            Which::Nth(n) => format!(" (time {n})"),
            Which::Any => String::new(),
        };
        outln!("  where:   {}{when}, {}", name_of(site, met), verb(site.call));
        outln!("  chosen:  {}", words_of(site.call, *choice));
        if site.call == Call::Arm {
            polls(met, |m| m.site == *site && entry.object.has(m.object));
        }
    }
    if entries.len() > SHOWN {
        outln!("  and {} choices more, in the file", entries.len() - SHOWN);
    }
}

/// Where the queues are polled that are armed at the places that `is_arm` says.
fn polls(met: &[Met], is_arm: impl Fn(&Met) -> bool) {
    let armed: BTreeSet<_> =
        met.iter().filter(|m| m.site.call == Call::Arm && is_arm(m)).map(|m| m.object).collect();
    let places: BTreeSet<_> = met
        .iter()
        .filter(|m| m.site.call == Call::Poll && armed.contains(&m.object))
        .map(|m| line_of(&m.words))
        .collect();
    if !places.is_empty() {
        outln!("  polled:  {}", places.into_iter().collect::<Vec<_>>().join("; "));
    }
}

/// The same for what has slept beside its completions without any choice.
fn polls_if_lost(attempt: &Attempt, met: &[Met]) {
    if attempt.output.contains(LOST) {
        polls(met, |_| true);
    }
}

fn verb(call: Call) -> &'static str {
    match call {
        Call::Arm => "ibv_req_notify_cq",
        Call::Poll | Call::Error => "ibv_poll_cq",
        Call::Post => "ibv_post_send",
        Call::Event => "ibv_get_cq_event",
    }
}

/// What the device reported, and the program's last words.
fn said(attempt: &Attempt) {
    let lines: Vec<_> = attempt.output.lines().collect();
    let (device, program): (Vec<&str>, Vec<&str>) = lines.iter().partition(|l| l.starts_with("adverb: "));
    for line in device.iter().take(LINES) {
        outln!("  device:  {}", line.trim_start_matches("adverb: "));
    }
    if matches!(attempt.verdict, Verdict::Report(_)) {
        return;
    }
    for line in &program[program.len().saturating_sub(LINES)..] {
        outln!("  output:  {line}");
    }
}

/// The command as a shell takes it.
fn line(args: &Args) -> String {
    let mut text = String::new();
    for (i, word) in args.command.iter().enumerate() {
        let word = word.to_string_lossy();
        let space = if i == 0 { "" } else { " " };
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
        let _ = match word.chars().all(plain) && !word.is_empty() {
            true => write!(text, "{space}{word}"),
            false => write!(text, "{space}'{}'", word.replace('\'', "'\\''")),
        };
    }
    text
}
