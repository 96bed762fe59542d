//! Everything against Linux soft-RoCE: programs of Debian, every operation with every byte checked,
//! faults on purpose.
#![forbid(unsafe_code)]

mod connections;
mod deaths;
mod faults;
mod iser;
mod operations;
mod perftest;
mod pingpong;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use adverb_foreign::cc::compile_file;
use adverb_foreign::suite::{case, run};
use adverb_foreign::{Verdict, process};
use adverb_interop::ends::{End, Family};
use adverb_interop::pair::Ends;
use adverb_interop::{table, vm};
use libtest_mimic::{Arguments, Trial};

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
    let mut cases = Vec::new();
    operations::push(&mut cases);
    faults::push(&mut cases);
    pingpong::push(&mut cases);
    perftest::push(&mut cases);
    connections::push(&mut cases);
    deaths::push(&mut cases);
    iser::push(&mut cases);
    let code = run("interop", cases);
    table::print();
    code
}

/// Longer than this without a processor, and retries that are meant to last run out …
const AWAY: Duration = Duration::from_millis(250);
/// … but over a long case only if it was so much of its time: one in …
const SHARE: u32 = 4;
/// What a requester says whose peer did not answer in time, in the words of the programs and of our
/// log. Nothing else is put down to the machine: an end that hangs, or wrong bytes, fail at once.
const RETRIES_RAN_OUT: [&str; 3] = ["transport retry counter exceeded", "RETRY_EXC_ERR", "RetryExcErr"];
/// How often a case is begun again because the machine was away.
const AGAIN: u32 = 2;

/// A case that counts in the closing table. One whose retries run out while the machine waits for a
/// processor is repeated, and says so: an emulated machine that is not scheduled answers nobody.
fn counted(
    name: String,
    row: String,
    ends: Ends,
    family: Family,
    what: impl Fn() -> Verdict + Send + 'static,
) -> Trial {
    let name = format!("{name}/{family}/{}", ends.name());
    case(name.clone(), move || {
        let mut verdict = Ok(());
        for again in (0..=AGAIN).rev() {
            let (before, since) = (vm::waited_for_processor(), Instant::now());
            verdict = what();
            let (away, lasted) = (vm::waited_for_processor().saturating_sub(before), since.elapsed());
            let Err(why) = &verdict else { break };
            let ran_out = RETRIES_RAN_OUT.iter().any(|words| why.contains(words));
            if !ran_out || away < AWAY.max(lasted / SHARE) || again == 0 {
                break;
            }
            println!(
                "repeated: {name}: the machine waited {away:?} of {lasted:?} for a processor; failed with:\n{why}"
            );
        }
        table::record(&row, &format!("{} to {} {family}", ends.client, ends.server), verdict.is_ok());
        verdict
    })
}

/// The path of `c/peer.c`, compiled, at the end.
fn peer(end: End) -> Result<&'static str, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    static ADVERB: OnceLock<Result<String, String>> = OnceLock::new();
    static RXE: OnceLock<Result<String, String>> = OnceLock::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c/peer.c");
    let built = BUILT.get_or_init(|| compile_file(&source, "interop-peer")).as_ref().map_err(Clone::clone)?;
    let place = if end == End::Adverb { &ADVERB } else { &RXE };
    place.get_or_init(|| end.install(built)).as_deref().map_err(Clone::clone)
}
