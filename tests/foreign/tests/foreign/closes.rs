//! A program closes all its descriptors while a device is open, and gets the same numbers for its
//! own files and sockets. The device neither writes to these, nor reads from them, nor closes them
//! (`c/closes.c`).

use std::time::Duration;

use adverb_foreign::cases::{PATHS, rig};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    let all = ["files", "sockets", "datagrams"].into_iter();
    all.flat_map(|kind| PATHS.map(|path| case(format!("{path}/{kind}"), move || one(kind, path))))
        .collect()
}

fn one(kind: &str, path: &str) -> Verdict {
    let out = rig("closes", &[], &[kind])?.env("ADVERB_PATH", path).run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains(&format!("ok closes {kind}")), "{}", out.describe());
    Ok(())
}
