//! OpenSHMEM of Open MPI: the programs of `c/shmem.c`.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::suite::{Case, by_length, case};
use adverb_programs::openmpi::{TRANSPORTS, compile, launch};
use adverb_programs::stage::PATHS;

const LIMIT: Duration = Duration::from_secs(120);
const CASES: [&str; 4] = ["putget", "flags", "atomics", "collectives"];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        for tls in TRANSPORTS {
            for name in CASES {
                cases.push(case(format!("{path}/{tls}/{name}"), move || program(path, tls, name)));
            }
        }
    }
    cases
}

fn program(path: &str, tls: &str, name: &str) -> Verdict {
    let program = compile("oshcc", "shmem", &[])?;
    let (pes, rounds) = by_length((3, "2"), (2, "1"));
    let done = launch("oshrun", path, tls, pes, &[&program, name, rounds], LIMIT)?;
    done.require_words(&[&format!("ok {name} with {pes} PEs")])
}
