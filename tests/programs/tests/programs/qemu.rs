//! QEMU's live migration over RDMA. The sender writes the pages of one virtual machine into the
//! memory of another, and the pages are compared.

use std::path::PathBuf;
use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::suite::{Case, by_length, case};
use adverb_programs::stage::{PATHS, Stage};

const LIMIT: Duration = Duration::from_secs(150);

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for path in PATHS {
        for pin in by_length(&["off", "on"][..], &["off"][..]) {
            let name = format!("{path}/migration/pin_all_{pin}");
            cases.push(case(name, move || migration(path, pin)));
        }
    }
    cases
}

/// The virtual machines stay stopped, so only the migration writes to their memory.
fn migration(path: &str, pin: &str) -> Verdict {
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("data/qemu_migration.py");
    let script = script.display().to_string();
    Stage::new(path)
        .run_ok(&["python3", &script, pin], LIMIT)?
        .require_words(&["ok 33554432 bytes"])
}
