//! Functions of the drop-in beyond verbs, used from C through `adverb.h`: cases of `c/ext.c`.

use std::time::Duration;

use adverb_foreign::cases::rig;
use adverb_foreign::suite::{Case, case};

const LIMIT: Duration = Duration::from_secs(60);

/// A case, and words of its output.
const CASES: [(&str, &str, &[&str]); 5] = [
    ("EXT-1", "peek_leaves_completions", &[]),
    ("EXT-2", "events_come_in_batches_or_after_a_time", &[]),
    ("EXT-3", "a_persistent_arm_tells_of_every_completion", &[]),
    ("EXT-4", "the_report_names_the_arm", &["lost wake-up", "in arm_the_queue"]),
    ("EXT-4", "what_no_event_will_speak_of_is_counted", &[]),
];

pub fn cases() -> Vec<Case> {
    let one = |(id, name, words): (&str, &'static str, &'static [&str])| {
        case(format!("{id}/{name}"), move || {
            let out = rig("ext", &[], &[name])?.run_ok(LIMIT)?;
            out.require_words(&[name])?;
            out.require_words(words)
        })
    };
    CASES.map(one).into()
}
