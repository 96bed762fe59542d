//! The ping-pong programs of rdma-core, with checked bytes.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::suite::{Case, by_length};
use adverb_interop::ends::Family;
use adverb_interop::pair::{Ends, FROM_RXE, TO_RXE};

use crate::counted;

const LIMIT: Duration = Duration::from_secs(90);
/// Program and options; rxe has no XRC.
const FULL: &[(&str, &str)] = &[
    ("rc", ""),
    ("rc", "-e"),
    ("rc", "-m 256 -s 65537"),
    ("rc", "-m 4096 -s 1048576"),
    ("rc", "-r 1"),
    ("uc", ""),
    ("uc", "-e"),
    ("uc", "-m 256 -s 5000"),
    ("ud", "-s 1024"),
    ("ud", "-s 4096 -e"),
    ("srq", ""),
    ("srq", "-e"),
    ("srq", "-q 4 -s 20000"),
];
const SHORT: &[(&str, &str)] =
    &[("rc", "-e"), ("rc", "-m 256 -s 65537"), ("uc", ""), ("ud", "-s 4096 -e"), ("srq", "-e")];

pub fn push(cases: &mut Vec<Case>) {
    for (kind, flags) in by_length(FULL, SHORT) {
        for family in by_length(&[Family::V4, Family::V6][..], &[Family::V4][..]) {
            for ends in [TO_RXE, FROM_RXE] {
                let variant =
                    if flags.is_empty() { "plain".to_string() } else { flags.replace(' ', "_") };
                let name = format!("pingpong/{kind}/{variant}");
                let row = format!("ibv_{kind}_pingpong");
                cases.push(counted(name, row, ends, *family, move || {
                    pingpong(kind, flags, ends, *family)
                }));
            }
        }
    }
}

fn pingpong(kind: &str, flags: &str, ends: Ends, family: Family) -> Verdict {
    // Few rounds of many packets: the program's timers are short and fixed.
    let n = if flags.contains("65537") || flags.contains("1048576") { 20 } else { 100 };
    let outcome = ends.run_ok(
        |end| {
            let args = end.place(family)?.args("-g", &format!("-c -n {n} {flags}"));
            Ok(end.program(&format!("ibv_{kind}_pingpong"), &args))
        },
        LIMIT,
    )?;
    outcome.require_of_both(&[" iters in "], &["invalid data", "Failed status", "Couldn't"])
}
