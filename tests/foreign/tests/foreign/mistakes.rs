//! What the log of `adverb run` says of failed calls and requests, without any option.

use std::time::Duration;

use adverb_foreign::cases::{PATHS, rig};
use adverb_foreign::process::{Finished, Program};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, cc, require};

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
            out.require(!others.iter().any(|o| out.text.contains(o)))
        })
    };
    let mut all: Vec<_> = PATHS.map(told_once).into();
    all.push(case("local/a_refused_request_has_the_reason_of_the_peer", || {
        let out = run("local")?;
        let line = "remote access error: key 0x01234500 names no memory region or window";
        out.require_words(&[line])
    }));
    all.push(case("CHK-10/lines_of_a_cpp_program_are_its_own", || {
        names_line(&[], " in drop", "owner.reset();")?;
        names_line(&["template"], "app::Holder<ibv_cq>::resize", "int result = ibv_resize_cq")
    }));
    all.extend(PATHS.map(|path| {
        case(format!("{path}/the_process_that_refuses_says_why"), move || {
            let out = run(path)?;
            let said = out.text.lines().any(|l| {
                l.starts_with("adverb: warn: queue pair ")
                    && l.ends_with(": key 0x01234500 names no memory region or window")
                    && !l.contains("completes with")
            });
            out.require(said)
        })
    }));
    all
}

fn run(path: &str) -> Result<Finished, String> {
    let program = rig::<&str>("mistakes", &[], &[])?.env("ADVERB_PATH", path);
    let out = program.run_ok(Duration::from_secs(90))?;
    out.require_words(&["ok mistakes"])?;
    Ok(out)
}

/// The check names this function and this line of `c/names.cpp` for the failed call.
fn names_line(words: &[&str], function: &str, line: &str) -> Verdict {
    let source = cc::source_dir().join("names.cpp");
    let text = std::fs::read_to_string(&source).map_err(|e| e.to_string())?;
    let number = text.lines().position(|l| l.contains(line)).map_or(0, |at| at + 1);
    let program = cc::compile_with("c++", &["-O2"], &source, "names")?;
    let program = Program::new(program.display().to_string(), words).flag("--check");
    let out = program.run(Duration::from_secs(90))?;
    let place = format!(", names.cpp:{number})");
    let named = |l: &str| l.contains("call-failed") && l.contains(function) && l.ends_with(&place);
    out.require(out.text.lines().any(named))
}
