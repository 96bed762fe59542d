//! All tests against Linux soft-RoCE: programs of Debian, every operation with every byte checked,
//! and deliberate faults.
#![forbid(unsafe_code)]

mod connections;
mod deaths;
mod faults;
mod iser;
mod operations;
mod perftest;
mod pingpong;

use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use adverb_foreign::cc::compile_file;
use adverb_foreign::suite::{self, Case, Suite, case};
use adverb_foreign::{Verdict, process};
use adverb_interop::ends::{Family, Side};
use adverb_interop::pair::Ends;
use adverb_interop::{table, vm};
use libtest_mimic::Arguments;

fn main() -> ExitCode {
    if !Arguments::from_args().list {
        if let Err(why) = process::adverb() {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
        if !vm::inside() {
            return vm::again_beside(&[]);
        }
    }
    suite::main(SUITES)
}

const SUITES: &[Suite] = &[Suite::new("interop", cases).after(table::print)];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    operations::push(&mut cases);
    faults::push(&mut cases);
    pingpong::push(&mut cases);
    perftest::push(&mut cases);
    connections::push(&mut cases);
    deaths::push(&mut cases);
    iser::push(&mut cases);
    cases
}

/// After this time without a processor, even long retries run out.
const AWAY: Duration = Duration::from_millis(250);
/// For a long case the wait must also be at least this fraction of its time: one in `SHARE`.
const SHARE: u32 = 4;
/// Messages of a requester after a missing answer, in the words of the programs and of Adverb's
/// log. Only these are blamed on the machine. A hang or wrong bytes fail at once.
const RETRIES_RAN_OUT: [&str; 3] =
    ["transport retry counter exceeded", "RETRY_EXC_ERR", "RetryExcErr"];
/// How often a case is repeated because the machine had no processor.
const AGAIN: u32 = 2;

/// A case that counts in the closing table. If its retries run out while the machine waits for a
/// processor, the case is repeated, and the output says so. An emulated machine without a processor
/// answers no requests.
fn counted(
    name: String,
    row: String,
    ends: Ends,
    family: Family,
    what: impl Fn() -> Verdict + Send + 'static,
) -> Case {
    let name = format!("{name}/{family}/{}", ends.name());
    case(name.clone(), move || {
        let mut verdict = Ok(());
        for again in (0..=AGAIN).rev() {
            let (before, since) = (vm::waited_for_processor(), Instant::now());
            verdict = what();
            let (away, lasted) =
                (vm::waited_for_processor().saturating_sub(before), since.elapsed());
            let Err(why) = &verdict else { break };
            let ran_out = RETRIES_RAN_OUT.iter().any(|words| why.contains(words));
            if !ran_out || away < AWAY.max(lasted / SHARE) || again == 0 {
                break;
            }
            println!(
                "repeated: {name}: the machine waited {away:?} of {lasted:?} for a processor; failed with:\n{why}"
            );
        }
        table::record(
            &row,
            &format!("{} to {} {family}", ends.client, ends.server),
            verdict.is_ok(),
        );
        verdict
    })
}

/// The path of the compiled `c/peer.c` at the end.
fn peer(end: Side) -> Result<&'static str, String> {
    static ADVERB: OnceLock<Result<String, String>> = OnceLock::new();
    static RXE: OnceLock<Result<String, String>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/peer.c");
    let place = if end == Side::Adverb { &ADVERB } else { &RXE };
    let name = place.get_or_init(|| end.install(&compile_file(&source, "interop-peer")?));
    name.as_deref().map_err(Clone::clone)
}
