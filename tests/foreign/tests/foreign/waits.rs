//! Each wait of a program on descriptors of the device returns what the kernel returns for the same
//! descriptors as plain pipes: cases of `c/waits.c`. The same in handlers of signals: cases of
//! `c/waits_in_handlers.c`. `WAITS_SEED` and `WAITS_STEPS` choose longer
//! runs.

use std::time::Duration;

use adverb_foreign::cases::{of, of_linked, ok_or_skipped, rig};
use adverb_foreign::suite::{Case, case_or_skip};

const LIMIT: Duration = Duration::from_secs(120);

pub fn cases() -> Vec<Case> {
    // Packets that come twice or out of order wake the device, and make no event.
    let doubled = case_or_skip("doubled_packets/model", || {
        let program = rig("waits", &["-lrdmacm"], &["model"])?
            .option("--fault", "dup=10%,reorder=5%")
            .env("ADVERB_PATH", "wire")
            .env("WAITS_DOUBLED", "1");
        ok_or_skipped(&program.run(LIMIT)?, "ok model")
    });
    let in_handlers = of("waits_in_handlers");
    of_linked("waits", &["-lrdmacm"]).into_iter().chain([doubled]).chain(in_handlers).collect()
}
