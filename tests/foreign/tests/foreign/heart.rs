//! A program that loses a wake-up or an acknowledgement gets a report (EXT-4, EXT-5): cases of
//! `c/heart.c`, judged by the library's standard error. `adverb run` sets `ADVERB_LOG=warn`, so the
//! programs request nothing.

use std::time::Duration;

use adverb_foreign::cases::rig;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

/// The programs wait twenty seconds for a report.
const LIMIT: Duration = Duration::from_secs(60);
/// The function of `heart.c` that arms the queue.
const ARMS: &str = "in arm_the_receiver";

/// Each case, and the words of its only report; a correct program gets none.
pub fn cases() -> Vec<Case> {
    let early = &["8 completions that came before its last arm", "armed at heart+0x", ARMS][..];
    let late = &["5 completions", "armed at heart+0x", ARMS][..];
    let mut cases: Vec<_> = [
        ("epoll_in_order", None),
        ("epoll_early", Some(early)),
        ("poll_in_order", None),
        ("poll_early", Some(early)),
        ("get_in_order", None),
        ("get_early", Some(early)),
        ("never_armed", Some(&["5 completions", "never armed"])),
        ("armed_too_late", Some(late)),
    ]
    .map(|(name, words)| {
        case(format!("EXT-4/{name}"), move || match words {
            Some(words) => told("EXT-4", name, &[&["lost wake-up"], words].concat()),
            None => silent("EXT-4", name),
        })
    })
    .into();
    // The program itself judges the report.
    cases.push(case("EXT-4/slow_poller", || lines("EXT-4", "slow_poller").map(drop)));
    cases.push(case("EXT-5/unacknowledged", || {
        told("EXT-5", "unacknowledged", &["destroying", "2 event", "not acknowledged"])
    }));
    cases
}

/// Runs a case and returns the output and the lines of the library's log.
fn lines(id: &str, name: &str) -> Result<(String, Vec<String>), String> {
    let out = rig("heart", &[], &[name])?.run_ok(LIMIT)?;
    out.require_words(&[&format!("ok {id} {name}")])?;
    let lines =
        out.text.lines().filter(|l| l.starts_with("adverb: ")).map(str::to_string).collect();
    Ok((out.describe(), lines))
}

/// Exactly one line, at level `warn`, has all these words.
fn told(id: &str, name: &str, words: &[&str]) -> Verdict {
    let (output, lines) = lines(id, name)?;
    let all = |line: &&String| {
        line.starts_with("adverb: warn: ") && words.iter().all(|w| line.contains(w))
    };
    let reports = lines.iter().filter(all).count();
    require!(reports == 1, "{reports} lines say all of {words:?}:\n{output}");
    Ok(())
}

/// A correct program gets no report.
fn silent(id: &str, name: &str) -> Verdict {
    let (output, lines) = lines(id, name)?;
    require!(lines.is_empty(), "{} lines where none was due:\n{output}", lines.len());
    Ok(())
}
