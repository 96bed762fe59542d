//! Functions of the drop-in beyond verbs, used from C through `adverb.h`: cases of `c/ext.c`.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::Duration;

use adverb_foreign::cc::compile;
use adverb_foreign::device::loopback;
use adverb_foreign::process::Program;
use adverb_foreign::require;
use adverb_foreign::suite::{case, run};

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    run(
        "ext",
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
        ],
    )
}

fn extension(name: &str) -> Result<String, String> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = BUILT.get_or_init(|| compile("ext")).clone()?;
    let lo = loopback()?;
    let out = Program::new(program.display().to_string(), &[name])
        .env("RIG_DEV", lo.dev)
        .env("RIG_GID", lo.gid)
        .run(LIMIT)?;
    out.require_ok()?;
    require!(out.text.contains(name), "{}", out.describe());
    Ok(out.describe())
}
