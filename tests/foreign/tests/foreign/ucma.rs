//! UCM-11: the file of rdma_cm in libibverbs.so.1, with the commands of the kernel's header, within
//! one host and over the wire.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cases::rig;
use adverb_foreign::suite::{Case, case};

const LIMIT: Duration = Duration::from_secs(120);

pub fn cases() -> Vec<Case> {
    vec![
        case("UCM-11/the_file_on_one_host", || program("local")),
        case("UCM-11/the_file_by_the_wire", || program("wire")),
    ]
}

fn program(path: &str) -> Verdict {
    rig::<&str>("ucma", &[], &[])?
        .env("ADVERB_PATH", path)
        .run_ok(LIMIT)?
        .require_words(&["ok ucma"])
}
