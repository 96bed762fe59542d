//! The text of a hunt's report.
use super::attempt::{Attempt, Met, Verdict, Who};
use super::shrink::{Confirmed, Rate};
use super::{Args, Coverage, Found, SearchOutcome};
use crate::examination;
use crate::results::source::{line, line_of, line_with_caller};
use adverb_choice::{Call, ChoiceEntry, Schedule, Site, Which};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

/// Number of lines shown of the output of the program and of the device.
const LINES: usize = 6;
/// Number of choices shown.
const SHOWN: usize = 4;

/// Adds a line to a text. Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($rest:tt)*) => { { let _ = writeln!($text, $($rest)*); } };
}

fn name_of(site: &Site, met: &[Met]) -> String {
    met.iter()
        .find(|m| m.site == *site)
        .map_or_else(|| site.place.clone(), |m| line_with_caller(&m.words))
}

pub fn begins(first: &Attempt, singles: usize) -> String {
    let places: BTreeSet<_> = first.sites.iter().map(|m| &m.site.place).collect();
    let stays = if first.stayed {
        "; the server stays when the client has ended, so the hunt ends the server"
    } else {
        ""
    };
    let what = if first.outputs.len() > 1 { "pair" } else { "program" };
    format!(
        "adverb hunt: the {what} works in {:.1?} with {} places of choice; {singles} single choices, then pairs, then seeds{stays}\n",
        first.took,
        places.len()
    )
}

/// The first run, without a choice, was not over at the end of the time.
pub fn too_long(first: &Attempt) -> String {
    let mut text = format!(
        "adverb hunt: nothing found: the program has not ended within {:.1?} in its first run, \
         without a choice: use --time, or a shorter run of the program\n",
        first.took
    );
    cause(&mut text, "does:", first);
    text
}

pub fn fails_alone(args: &Args, first: &Attempt, rate: Rate) -> String {
    let found =
        if rate.is_doubtful(first) { "doubtful, it may be chance: failed" } else { "found" };
    let mut text = format!("adverb hunt: {found} without any choice: {}\n", headline(first));
    cause(&mut text, "cause:", first);
    polls_if_lost(&mut text, first, &first.sites);
    before(&mut text, first);
    said(&mut text, first);
    line!(text, "  again:   fails in {rate} runs without a choice");
    replay(&mut text, args, "");
    text
}

pub fn nothing(
    args: &Args,
    runs: usize,
    took: Duration,
    outcome: &SearchOutcome,
    first: &Attempt,
    coverage: &Coverage,
) -> String {
    let a_minute = runs as f64 * 60.0 / took.as_secs_f64().max(0.001);
    let mut text = format!(
        "adverb hunt: nothing found in {runs} runs, {took:.0?}, {a_minute:.0} runs a minute\n"
    );
    let Coverage { tried, singles, several, seeds, .. } = coverage;
    line!(
        text,
        "  tried:   {tried} of {singles} single choices, {several} with several choices, {seeds} seeds \
         from {}",
        args.seed
    );
    if !coverage.is_whole() {
        let why = match adverb_survivor::is_interrupted() {
            true => "stopped before every single choice was tried",
            false => "the time was too short: use --time, or a shorter run of the program",
        };
        line!(text, "  {why}");
    }
    let calm = first.sites.iter().filter(|met| !coverage.disturbed.contains(&met.site));
    let lines: BTreeSet<_> = calm.map(|met| line_of(&met.words)).collect();
    if !lines.is_empty() {
        let shown: Vec<_> = lines.iter().take(SHOWN).cloned().collect();
        let more = match lines.len().saturating_sub(SHOWN) {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        line!(text, "  never disturbed: {}{more}", shown.join("; "));
    }
    for (site, what) in &coverage.losses {
        line!(
            text,
            "  counts on: the message posted at {}: if it is lost, as UC and UD allow, {what}",
            name_of(site, &first.sites)
        );
    }
    for attempt in &outcome.once {
        line!(text, "  once, but not again: {}", attempt.what());
        cause(&mut text, "state:", attempt);
    }
    for risk in examination::risks(first.reports.iter().chain(&outcome.reports)) {
        line!(text, "  {risk}");
    }
    text
}

/// The verdict, without what the cause says below.
fn headline(attempt: &Attempt) -> String {
    match attempt.verdict {
        Verdict::Report(_) if examination::is_known(&attempt.reports) => {
            format!("{} continues after a mistake, by luck", attempt.who)
        }
        _ => attempt.what(),
    }
}

/// The text of the schedule file, which replays the failure.
pub fn file(args: &Args, found: &Confirmed) -> String {
    let text = found.schedule.to_string();
    let (head, rest) = text.split_once('\n').unwrap_or((&text, ""));
    format!(
        "{head}\n# of: {}\n# found: {}\n{rest}",
        one_line(&line(&args.command)),
        one_line(&found.attempt.what())
    )
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

pub fn found(args: &Args, found: &Found, met: &[Met]) -> String {
    let Found { failure: Confirmed { schedule, attempt, with, without }, run, after } = found;
    let found =
        if with.is_doubtful(attempt) { "doubtful, it may be chance: failed" } else { "found" };
    let mut text =
        format!("adverb hunt: {found} in run {run}, after {after:.1?}: {}\n", headline(attempt));
    // A choice says more about a failure than the state of the threads.
    let first = schedule.is_empty() || examination::is_known(&attempt.reports);
    if first {
        cause(&mut text, "cause:", attempt);
    }
    chosen(&mut text, schedule, attempt, met);
    if !first {
        cause(&mut text, "state:", attempt);
    }
    before(&mut text, attempt);
    said(&mut text, attempt);
    match schedule.is_empty() {
        true => line!(text, "  again:   fails in {with} runs without a choice"),
        false => {
            line!(text, "  again:   fails in {with} runs with the choice, in {without} without");
        }
    }
    replay(&mut text, args, &format!("--replay {} ", args.out.display()));
    text
}

/// The commands that replay the failure, one line for each command.
fn replay(text: &mut String, args: &Args, options: &str) {
    if let Some(words) = &args.before {
        line!(text, "  before:  {}", one_line(&words.to_string_lossy()));
    }
    for (i, command) in args.commands().iter().enumerate() {
        let label = if i == 0 { "replay:  " } else { "   and:  " };
        line!(text, "  {label}adverb run {options}-- {}", line(command));
    }
}

/// The choices that a report shows: the choices of the schedule, or the choices that a seed has
/// made.
pub fn shown<'a>(schedule: &'a Schedule, attempt: &'a Attempt) -> &'a [ChoiceEntry] {
    match schedule.is_empty() {
        true => &[],
        false if schedule.entries.is_empty() => &attempt.made,
        false => &schedule.entries,
    }
}

/// The choices, and the places at which they were made.
fn chosen(text: &mut String, schedule: &Schedule, attempt: &Attempt, met: &[Met]) {
    if schedule.is_empty() {
        line!(text, "  chosen:  nothing; the program fails by itself now and then");
        polls_if_lost(text, attempt, met);
        return;
    }
    let entries = shown(schedule, attempt);
    let mut rules = Vec::new();
    for entry in entries.iter().take(SHOWN) {
        let ChoiceEntry { site, count, choice, .. } = entry;
        let when = match count {
            Which::Nth(n) => format!(" (time {n})"),
            Which::Any => String::new(),
        };
        line!(text, "  where:   {}{when}, {}", name_of(site, met), verb(site.call));
        line!(text, "  chosen:  {}", choice.words(site.call));
        let rule = choice.rule(site.call);
        if !rules.contains(&rule) {
            line!(text, "  rule:    {rule}");
            rules.push(rule);
        }
        if site.call == Call::Arm {
            polls(text, met, |m| m.site == *site && entry.object.has(m.object));
        }
    }
    if entries.len() > SHOWN {
        line!(text, "  and {} more choices, in the file", entries.len() - SHOWN);
    }
}

/// The places where queues are polled, for all queues that are armed at a place for which `is_arm`
/// is true.
fn polls(text: &mut String, met: &[Met], is_arm: impl Fn(&Met) -> bool) {
    let armed: BTreeSet<_> =
        met.iter().filter(|m| m.site.call == Call::Arm && is_arm(m)).map(|m| m.object).collect();
    let places: BTreeSet<_> = met
        .iter()
        .filter(|m| m.site.call == Call::Poll && armed.contains(&m.object))
        .map(|m| line_of(&m.words))
        // A place of the cause stands above.
        .filter(|place| !text.contains(place.as_str()))
        .collect();
    if !places.is_empty() {
        line!(text, "  polled:  {}", places.into_iter().collect::<Vec<_>>().join("; "));
    }
}

/// Like `polls`, for a program that lost a wake-up without any choice.
fn polls_if_lost(text: &mut String, attempt: &Attempt, met: &[Met]) {
    if attempt.lost().is_some() {
        polls(text, met, |_| true);
    }
}

/// What the processes say about the failure.
fn cause(text: &mut String, label: &str, attempt: &Attempt) {
    for line in examination::shown(label, &attempt.reports) {
        line!(text, "  {line}");
    }
}

/// The last calls of the processes.
fn before(text: &mut String, attempt: &Attempt) {
    for line in examination::picture(&attempt.picture) {
        line!(text, "  {line}");
    }
}

fn verb(call: Call) -> &'static str {
    match call {
        Call::Arm => "ibv_req_notify_cq",
        Call::Poll | Call::Error | Call::Message => "ibv_poll_cq",
        Call::Post | Call::Unreliable | Call::Shared => "ibv_post_send",
        Call::Event => "ibv_get_cq_event",
        Call::Receive => "ibv_post_recv",
        Call::Async => "ibv_get_async_event",
        Call::Connection => "rdma_get_cm_event",
        Call::Modify => "ibv_modify_qp",
        Call::Register => "ibv_reg_mr",
        Call::Acknowledge => "rdma_ack_cm_event",
    }
}

/// The reports of the device, and the last lines of the program's output.
fn said(text: &mut String, attempt: &Attempt) {
    for output in &attempt.outputs {
        let (device, program): (Vec<&str>, Vec<&str>) =
            output.text.lines().partition(|l| l.starts_with("adverb: "));
        // The reports of the check stand above.
        let is_new = |line: &&str| {
            !line.contains(" check: ") && !examination::have_said(&attempt.reports, line)
        };
        let device: Vec<&str> = device.into_iter().filter(is_new).collect();
        let (said, wrote) = match output.who {
            Who::Server => ("server:  adverb: ", "server:  "),
            Who::Client => ("client:  adverb: ", "client:  "),
            _ => ("device:  ", "output:  "),
        };
        for line in device.iter().take(LINES) {
            line!(text, "  {said}{}", line.trim_start_matches("adverb: "));
        }
        if matches!(attempt.verdict, Verdict::Report(_)) {
            continue;
        }
        for line in &program[program.len().saturating_sub(LINES)..] {
            line!(text, "  {wrote}{line}");
        }
    }
}
