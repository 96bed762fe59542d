//! Open MPI over UCX: the programs of `c/mpi.c`, and the suite of mpi4py, over reliable connections
//! and over datagrams.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::suite::{Case, by_length, case, short};
use adverb_programs::data_dir;
use adverb_programs::fetch::{self, PYTHON};
use adverb_programs::openmpi::{TRANSPORTS, compile, launch};
use adverb_programs::skips;
use adverb_programs::stage::PATHS;

const LIMIT: Duration = Duration::from_secs(120);
const SUITE_LIMIT: Duration = Duration::from_secs(900);
const CASES: [&str; 8] =
    ["ring", "flood", "probe", "types", "collectives", "onesided", "atomics", "epochs"];
/// The version of Debian's python3-mpi4py; the suite is in its source archive.
const MPI4PY: &str = "3.1.4";
const LEFT_OUT: &str = include_str!("../../data/mpi4py_left_out.txt");
/// The parts of mpi4py's suite in a short run.
const SHORT: [&str; 3] = ["test_p2p_buf", "test_cco_buf", "test_msgspec"];

pub fn before() -> Verdict {
    skips::print("mpi4py", LEFT_OUT);
    Ok(())
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        for tls in TRANSPORTS {
            for name in CASES {
                cases.push(case(format!("{path}/{tls}/{name}"), move || program(path, tls, name)));
            }
            cases.push(case(format!("{path}/{tls}/mpi4py"), move || mpi4py(path, tls)));
        }
    }
    cases
}

fn program(path: &str, tls: &str, name: &str) -> Verdict {
    let program = compile("mpicc", "mpi", &[])?;
    // Two ranks in a short run: waiting ranks spin, and small machines have two processors.
    let (ranks, rounds) = by_length((4, "2"), (2, "1"));
    let done = launch("mpirun", path, tls, ranks, &[&program, name, rounds], LIMIT)?;
    done.require_words(&[&format!("ok {name} with {ranks} ranks")])
}

/// Every rank reports its number of tests and the result of each failed test.
fn mpi4py(path: &str, tls: &str) -> Verdict {
    let dir = fetch::once("mpi4py", |dir| fetch::sdist(dir, "mpi4py", MPI4PY).map(|_| ()))?;
    let suite = dir.join(format!("mpi4py-{MPI4PY}/test")).display().to_string();
    let driver = data_dir().join("mpi4py_run.py").display().to_string();
    let list = data_dir().join("mpi4py_left_out.txt").display().to_string();
    let mut argv = vec![PYTHON, &driver, &suite, &list];
    if short() {
        argv.extend(SHORT);
    }
    let done = launch("mpirun", path, tls, 2, &argv, SUITE_LIMIT)?;
    let counts: Vec<&str> = done.text.lines().filter(|l| l.starts_with("mpi4py rank ")).collect();
    for line in &counts {
        println!("{path}/{tls}: {line}");
    }
    let held = |l: &&&str| l.contains(" 0 failed, 0 errors");
    done.require(counts.iter().filter(held).count() == 2)
}
