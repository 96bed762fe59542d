//! CQN and CHN requirements: each case of `c/notify.c` is a test named by its id. The manual page's
//! two examples are tests as well.

use std::time::Duration;

use adverb_foreign::cases::{listed, run_rig};
use adverb_foreign::suite::{Case, case};

/// Most cases take a second; the races take longer.
const LIMIT: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    let mut cases = listed("notify", |id, name| {
        let id = id.unwrap_or_default();
        let words = format!("ok {id} {name}");
        vec![case(format!("{id}/{name}"), move || run_rig("notify", &[&name], &words, LIMIT))]
    });
    // CHN-8: both examples of the manual page.
    cases.push(case("CHN-8/example_blocking", || {
        run_rig("example_blocking", &[], "ok blocking: 100 messages", LIMIT)
    }));
    cases.push(case("CHN-8/example_nonblocking", || {
        run_rig("example_nonblocking", &[], "ok non-blocking: 100 messages", LIMIT)
    }));
    cases
}
