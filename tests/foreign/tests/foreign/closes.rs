//! A program closes all its descriptors while a device is open, and gets the same numbers for its
//! own files and sockets. The device neither writes to these, nor reads from them, nor closes them
//! (`c/closes.c`).

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cases::{PATHS, rig};
use adverb_foreign::suite::{Case, case};

const LIMIT: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    let all = ["files", "sockets", "datagrams"].into_iter();
    all.flat_map(|kind| PATHS.map(|path| case(format!("{path}/{kind}"), move || one(kind, path))))
        .collect()
}

fn one(kind: &str, path: &str) -> Verdict {
    rig("closes", &[], &[kind])?
        .env("ADVERB_PATH", path)
        .run_ok(LIMIT)?
        .require_words(&[&format!("ok closes {kind}")])
}
