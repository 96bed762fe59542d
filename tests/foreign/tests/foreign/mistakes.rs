//! What the log of `adverb run` says of failed calls and requests, without any option.

use std::time::Duration;

use adverb_foreign::cases::{PATHS, rig};
use adverb_foreign::process::Finished;
use adverb_foreign::require;
use adverb_foreign::suite::{Case, case};

pub fn cases() -> Vec<Case> {
    let told_once = |path| {
        case(format!("{path}/a_mistake_is_told_once"), move || {
            let out = run(path)?;
            for line in [
                "ibv_modify_qp fails: no transition from Reset to Rts (EINVAL)",
                "ibv_post_send fails: post send is not allowed in state Reset (EINVAL)",
                "ibv_reg_mr fails: access: IBV_ACCESS_REMOTE_WRITE and _REMOTE_ATOMIC need IBV_ACCESS_LOCAL_WRITE (EINVAL)",
            ] {
                let count = out.text.matches(&format!("adverb: warn: {line}")).count();
                require!(count == 1, "{count} times {line:?}: {}", out.describe());
            }
            let others = ["queue is full", "ibv_query_ece"];
            require!(!others.iter().any(|o| out.text.contains(o)), "{}", out.describe());
            Ok(())
        })
    };
    let mut all: Vec<_> = PATHS.map(told_once).into();
    all.push(case("local/a_refused_request_has_the_reason_of_the_peer", || {
        let out = run("local")?;
        let line = "remote access error: key 0x01234500 names no memory region or window";
        require!(out.text.contains(line), "{}", out.describe());
        Ok(())
    }));
    all.extend(PATHS.map(|path| {
        case(format!("{path}/the_process_that_refuses_says_why"), move || {
            let out = run(path)?;
            let said = out.text.lines().any(|l| {
                l.starts_with("adverb: warn: queue pair ")
                    && l.ends_with(": key 0x01234500 names no memory region or window")
                    && !l.contains("completes with")
            });
            require!(said, "{}", out.describe());
            Ok(())
        })
    }));
    all
}

fn run(path: &str) -> Result<Finished, String> {
    let out =
        rig::<&str>("mistakes", &[], &[])?.env("ADVERB_PATH", path).run(Duration::from_secs(90))?;
    out.require_ok()?;
    require!(out.text.contains("ok mistakes"), "{}", out.describe());
    Ok(out)
}
