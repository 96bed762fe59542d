//! A seccomp filter refuses a system call: the device works, or the log names the call.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cases::{PATHS, rig};
use adverb_foreign::suite::{Case, case};

/// Lines of the log, before and after the name of the call.
const NO_PROCESS: &str = "adverb: error: other processes of this host cannot be reached: ";
const NO_MEMORY: &str = "adverb: warn: no memory is shared with other processes of this host: ";

pub fn cases() -> Vec<Case> {
    let named = |call: &'static str, mode: &'static str, line: &'static str| {
        case(format!("local/{call}_is_named"), move || {
            filtered(call, mode, "local", Some(format!("{line}the kernel refuses {call} (")))
        })
    };
    let mut all = vec![
        named("mincore", "talk", NO_MEMORY),
        named("getsockopt", "open", NO_PROCESS),
        named("accept4", "open", NO_PROCESS),
        named("connect", "open", NO_PROCESS),
    ];
    all.extend(PATHS.map(|path| {
        case(format!("{path}/getrandom_finds_no_memory"), move || {
            filtered("getrandom", "talk", path, None)
        })
    }));
    all
}

fn filtered(call: &str, mode: &str, path: &str, line: Option<String>) -> Verdict {
    let out = rig("seccomp", &[], &[call, mode])?
        .env("ADVERB_PATH", path)
        .run(Duration::from_secs(120))?;
    out.require_ok()?;
    out.require_words(&["ok seccomp"])?;
    out.require(line.is_none_or(|line| out.text.contains(&line)))
}
