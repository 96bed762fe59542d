//! Functions of the drop-in beyond verbs, used from C through `adverb.h`: cases of `c/ext.c`.

use std::time::Duration;

use adverb_foreign::cases::rig;
use adverb_foreign::require;
use adverb_foreign::suite::{Case, case};

const LIMIT: Duration = Duration::from_secs(60);

pub fn cases() -> Vec<Case> {
    vec![
        case("EXT-1/peek_leaves_completions", || extension("peek_leaves_completions").map(drop)),
        case("EXT-2/events_come_in_batches_or_after_a_time", || {
            extension("events_come_in_batches_or_after_a_time").map(drop)
        }),
        case("EXT-3/a_persistent_arm_tells_of_every_completion", || {
            extension("a_persistent_arm_tells_of_every_completion").map(drop)
        }),
        case("EXT-4/the_report_names_the_arm", || {
            let said = extension("the_report_names_the_arm")?;
            require!(said.contains("lost wake-up") && said.contains("in arm_the_queue"), "{said}");
            Ok(())
        }),
        case("EXT-4/what_no_event_will_speak_of_is_counted", || {
            extension("what_no_event_will_speak_of_is_counted").map(drop)
        }),
    ]
}

fn extension(name: &str) -> Result<String, String> {
    let out = rig("ext", &[], &[name])?.run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains(name), "{}", out.describe());
    Ok(out.describe())
}
