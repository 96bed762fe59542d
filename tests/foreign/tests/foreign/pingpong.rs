//! The five ping-pong programs of rdma-core, two processes each, on the loopback device.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::device::{DeviceArgs, loopback};
use adverb_foreign::pair::Pair;
use adverb_foreign::process::{Finished, Program, words};
use adverb_foreign::suite::{Case, by_length, case, short};

const LIMIT: Duration = Duration::from_secs(90);
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// A ping-pong program and the abilities of its command line.
#[derive(Clone, Copy)]
struct Kind {
    program: &'static str,
    /// `-c` checks the received bytes. `ibv_xsrq_pingpong` has no check; its -c is the number of
    /// clients.
    checks: bool,
    /// `-m` sets the path MTU. `ibv_ud_pingpong` uses the port's MTU.
    sets_mtu: bool,
    sizes: &'static [u32],
}

const RC: Kind = Kind {
    program: "ibv_rc_pingpong",
    checks: true,
    sets_mtu: true,
    sizes: &[1, 13, 1024, 4096, 65537, 1 << 20],
};
const UC: Kind = Kind { program: "ibv_uc_pingpong", ..RC };
const SRQ: Kind = Kind { program: "ibv_srq_pingpong", ..RC };
const XSRQ: Kind = Kind { program: "ibv_xsrq_pingpong", checks: false, ..RC };
/// UD refuses a message above the port's MTU (4096 on the loopback device).
const UD: Kind = Kind {
    program: "ibv_ud_pingpong",
    sets_mtu: false,
    sizes: &[1, 13, 256, 512, 1024, 2048, 4096],
    ..RC
};
const ALL: [Kind; 5] = [RC, UC, UD, SRQ, XSRQ];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for kind in ALL {
        for events in [false, true] {
            matrix(&mut cases, kind, events);
            let n = by_length(100_000, 5_000);
            push(&mut cases, kind, "long", events, format!("-s 1024 -n {n}"), n);
        }
    }
    push(&mut cases, SRQ, "one_queue_pair", false, "-q 1 -n 1000".into(), 1000);
    push(&mut cases, RC, "no_receives_to_spare", false, "-r 1 -n 1000".into(), 1000);
    // On-demand paging, explicit and implicit, with and without prefetch.
    for (what, flags) in [
        ("odp", "-o"),
        ("odp_prefetch", "-o -P"),
        ("implicit_odp", "-O"),
        ("implicit_odp_prefetch", "-O -P"),
        ("completion_timestamps", "-t"),
        ("device_memory", "-j"),
        ("device_memory_timestamps", "-j -t"),
        ("wr_api", "-N"),
        ("wr_api_odp", "-N -o"),
        ("wr_api_timestamps", "-N -t"),
    ] {
        for events in [false, true] {
            push(&mut cases, RC, what, events, format!("{flags} -n 1000"), 1000);
        }
    }
    push(&mut cases, SRQ, "odp", false, "-o -n 1000".into(), 1000);
    push(&mut cases, XSRQ, "odp", false, "-o -n 1000".into(), 1000);
    cases.push(case("rc/refuses_device_memory_with_odp", refuses_dm_with_odp).once());
    cases.push(case("ud/refuses_a_message_above_the_mtu", refuses_large_ud).once());
    cases
}

fn matrix(cases: &mut Vec<Case>, kind: Kind, events: bool) {
    let mtus: &[u32] = match (kind.sets_mtu, short()) {
        (false, _) => &[0],
        (true, false) => &MTUS,
        (true, true) => &[256, 4096],
    };
    for &mtu in mtus {
        for (i, &size) in kind.sizes.iter().enumerate() {
            // The short run keeps the first, a middle and the last size.
            if short() && ![0, 3, kind.sizes.len() - 1].contains(&i) {
                continue;
            }
            let n: u32 = if size >= 1 << 20 { 100 } else { 1000 };
            let mtu_flag = if mtu == 0 { String::new() } else { format!("-m {mtu}") };
            let what =
                if mtu == 0 { format!("size_{size}") } else { format!("mtu_{mtu}/size_{size}") };
            push(cases, kind, &what, events, format!("-s {size} {mtu_flag} -n {n}"), n);
        }
    }
}

fn push(cases: &mut Vec<Case>, kind: Kind, what: &str, events: bool, flags: String, iters: u32) {
    let short_name = kind.program.trim_start_matches("ibv_").trim_end_matches("_pingpong");
    let mode = if events { "events" } else { "polled" };
    let name = format!("{short_name}/{what}/{mode}");
    cases.push(case(name, move || pingpong(kind, &flags, events, iters)));
}

fn pingpong(kind: Kind, flags: &str, events: bool, iters: u32) -> Verdict {
    let lo = if kind.sets_mtu { loopback()? } else { alone() };
    let mut args = vec!["-d".to_string(), lo.dev, "-g".to_string(), lo.gid];
    args.extend(words(flags));
    if kind.checks {
        args.push("-c".into());
    }
    if events {
        args.push("-e".into());
    }
    let mut pair = Pair::new(kind.program, &args, LIMIT);
    if !kind.sets_mtu {
        pair = pair.env("ADVERB_DEVICES", "lo");
    }
    let outcome = pair.run_ok()?;
    // Only programs with a check print figures; the XRC program prints only "success".
    let done = if kind.checks { format!("{iters} iters in") } else { "success".to_string() };
    outcome.require_of_both(&[&done], &["invalid data", "Failed status", "parse WC failed"])?;
    // A prefetch is only advice, so a refusal is no failure.
    let cannot =
        |end: &Finished| end.text.contains("Couldn't") && !end.text.contains("Couldn't prefetch");
    outcome.require(!cannot(&outcome.server) && !cannot(&outcome.client))
}

/// The device of the loopback interface alone, whose port has a path MTU of 4096.
fn alone() -> DeviceArgs {
    DeviceArgs { dev: "adverb_lo".into(), gid: "0".into() }
}

fn refuses_dm_with_odp() -> Verdict {
    let out = Program::new("ibv_rc_pingpong", &["-j", "-o"]).run(LIMIT)?;
    out.require(out.code() == Some(1))?;
    out.require_words(&["DM memory region can't be on demand"])
}

fn refuses_large_ud() -> Verdict {
    let lo = alone();
    let args = ["-d", &lo.dev, "-g", &lo.gid, "-s", "4097"];
    let out = Program::new("ibv_ud_pingpong", &args).option("--device", "lo").run(LIMIT)?;
    out.require(out.code() == Some(1))?;
    out.require_words(&["Requested size larger than port MTU (4096)"])
}
