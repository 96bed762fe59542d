//! Symbols as programs look them up at run time, and the device as seen by UCX.

use std::time::Duration;

use adverb_foreign::cc::compile;
use adverb_foreign::device::loopback;
use adverb_foreign::process::{Finished, Program};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

/// The library's table of public names. Each row begins with the name and the version node.
const LIST: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/faces/ibverbs/symbols/public.txt");
const PUBLIC: &str = include_str!("../../../../crates/faces/ibverbs/symbols/public.txt");

pub fn cases() -> Vec<Case> {
    vec![
        case("nccl/dlopen_without_version_then_dlvsym", || nccl("libibverbs.so")),
        case("nccl/dlopen_by_soname_then_dlvsym", || nccl("libibverbs.so.1")),
        case("every_public_name_at_its_node", public),
        case("ucx_info_lists_rc_and_ud_verbs", ucx),
    ]
}

fn lookup(library: &str, mode: &str) -> Result<Finished, String> {
    let program = compile("symbols")?;
    Program::new(program.display().to_string(), &[library, mode, LIST]).run(Duration::from_secs(60))
}

fn nccl(library: &str) -> Verdict {
    let out = lookup(library, "nccl")?;
    out.require_ok()?;
    out.require_words(&["found 22 required, 5 optional"])
}

fn public() -> Verdict {
    let out = lookup("libibverbs.so.1", "public")?;
    out.require_ok()?;
    let n = PUBLIC.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).count();
    require!(n >= 75, "the list has only {n} names");
    out.require_words(&[&format!("found {n} of {n}")])
}

fn ucx() -> Verdict {
    let lo = loopback()?;
    let out = Program::new("ucx_info", &["-d"]).run_ok(Duration::from_secs(60))?;
    // "#      Transport: rc_verbs" is followed by "#         Device: NAME:1".
    let mut transport = "";
    let mut on_device = Vec::new();
    for line in out.text.lines() {
        let line = line.trim_start_matches(['#', ' ']);
        if let Some(t) = line.strip_prefix("Transport: ") {
            transport = t.trim();
        }
        if line.strip_prefix("Device: ").is_some_and(|d| d.trim() == format!("{}:1", lo.dev)) {
            on_device.push(transport);
        }
    }
    for wanted in ["rc_verbs", "ud_verbs"] {
        let listed = on_device.contains(&wanted);
        require!(listed, "no {wanted} on {}: {on_device:?}\n{}", lo.dev, out.describe());
    }
    Ok(())
}
