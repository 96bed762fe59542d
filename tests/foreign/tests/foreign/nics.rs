//! Unmodified programs on a device that stands for a NIC (`adverb run --as-nic`). Features of the
//! NIC work, and missing features are refused with the reason (NIC-2 to NIC-5).

use adverb_foreign::cases::rig;
use adverb_foreign::device::{loopback, on_loopback};
use adverb_foreign::pair::Pair;
use adverb_foreign::process::{Program, words};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

const ENOENT: i32 = 2;
const EOPNOTSUPP: i32 = 95;

/// Values in the output of `ibv_devinfo -v` for each NIC.
const SHOWN: &[(&str, &[(&str, &str)])] = &[
    (
        "mlx5",
        &[
            ("max_qp_wr", "32768"),
            ("max_sge", "30"),
            ("max_qp_rd_atom", "16"),
            ("max_srq_wr", "32767"),
        ],
    ),
    (
        "irdma",
        &[("max_qp_wr", "4063"), ("max_sge", "6"), ("atomic_cap", "ATOMIC_NONE"), ("max_srq", "0")],
    ),
    ("efa", &[("max_sge", "2"), ("max_mw", "0"), ("max_srq", "0"), ("max_mcast_grp", "0")]),
    (
        "siw",
        &[("max_sge", "6"), ("max_sge_rd", "1"), ("atomic_cap", "ATOMIC_NONE"), ("max_mw", "0")],
    ),
];

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (nic, lines) in SHOWN {
        cases.push(case(format!("NIC-5/shown/{nic}"), move || shows(nic, lines)));
    }
    for (nic, program) in [
        ("mlx5", "ibv_rc_pingpong"),
        ("mlx5", "ibv_srq_pingpong"),
        ("mlx5", "ibv_uc_pingpong"),
        ("irdma", "ibv_rc_pingpong"),
        ("irdma", "ibv_ud_pingpong"),
        ("efa", "ibv_ud_pingpong"),
        ("siw", "ibv_rc_pingpong"),
    ] {
        cases.push(case(format!("NIC-2/has/{nic}/{program}"), move || has(nic, program)));
    }
    for (nic, program, said, why) in [
        ("irdma", "ibv_uc_pingpong", "Couldn't create QP", "irdma has no Uc queue pairs"),
        (
            "irdma",
            "ibv_srq_pingpong",
            "Couldn't create SRQ",
            "irdma does not have shared receive queues",
        ),
        ("efa", "ibv_rc_pingpong", "Couldn't create QP", "efa has no Rc queue pairs"),
        ("siw", "ibv_ud_pingpong", "Couldn't create QP", "siw has no Ud queue pairs"),
    ] {
        cases.push(case(format!("NIC-2/lacks/{nic}/{program}"), move || {
            lacks(nic, program, said, why)
        }));
    }
    for nic in ["mlx5", "irdma", "siw"] {
        cases.push(case(format!("NIC-6/room/{nic}"), move || room(nic)));
    }
    cases.push(case("NIC-7/an_arm_over_a_completion_fires_at_once/mlx5", || {
        behind(Some("mlx5"), "1")
    }));
    cases.push(case("NIC-7/an_arm_over_a_completion_waits/irdma", || behind(Some("irdma"), "0")));
    cases.push(case("NIC-7/an_arm_over_a_completion_waits/adverb", || behind(None, "0")));
    cases.push(case("OBJ-8/cut_values_are_told_once", cut));
    cases.push(case("NIC-2/atomics_on_irdma", atomics));
    for (nic, hint, wait) in
        [(None, 0, ENOENT), (Some("mlx5"), ENOENT, ENOENT), (Some("irdma"), EOPNOTSUPP, EOPNOTSUPP)]
    {
        let name = format!("NIC-2/a_prefetch_of_resident_pages/{}", nic.unwrap_or("adverb"));
        cases.push(case(name, move || prefetch(nic, hint, wait)));
    }
    cases.push(case("NIC-4/memory_beyond_the_limit", memory));
    cases.push(case("NIC-1/unknown", unknown));
    cases
}

fn args(flags: &str) -> Result<Vec<String>, String> {
    on_loopback("-g", flags)
}

fn shows(nic: &str, lines: &[(&str, &str)]) -> Verdict {
    let lo = loopback()?;
    let out = Program::new("ibv_devinfo", &["-v", "-d", &lo.dev])
        .option("--as-nic", nic)
        .run_ok(LIMIT)?;
    for (name, value) in lines {
        let line = out.text.lines().find_map(|line| line.trim().strip_prefix(&format!("{name}:")));
        let shown = line.and_then(|rest| rest.split_whitespace().next());
        require!(shown == Some(*value), "{name} is not {value}: {}", out.describe());
    }
    Ok(())
}

fn has(nic: &str, program: &str) -> Verdict {
    let checks = if program.contains("_u") { "-n 100" } else { "-n 100 -c" };
    Pair::new(program, &args(checks)?, LIMIT).option("--as-nic", nic).run_ok().map(drop)
}

fn lacks(nic: &str, program: &str, said: &str, why: &str) -> Verdict {
    let program = Program::new(program, &args("")?).option("--as-nic", nic).option("--log", "info");
    let out = program.run(LIMIT)?;
    out.require(out.code() == Some(1))?;
    out.require_words(&[said, why])
}

fn atomics() -> Verdict {
    let pair = Pair::new("ib_atomic_lat", &on_loopback("-x", "-n 100")?, LIMIT)
        .option("--as-nic", "irdma")
        .option("--log", "info");
    let outcome = pair.run()?;
    require!(!outcome.client.ok(), "it worked: {}", outcome.describe());
    Ok(())
}

/// A program that runs one case of `c/values.c`.
fn values(name: &str) -> Result<Program, String> {
    rig("values", &[], &[name])
}

/// The program on a device that stands for the NIC, if there is one.
fn as_nic(program: Program, nic: Option<&str>) -> Program {
    nic.into_iter().fold(program, |program, nic| program.option("--as-nic", nic))
}

/// Runs `c/behind.c`. If all events have come, there is no lost wake-up to report.
fn behind(nic: Option<&str>, events: &str) -> Verdict {
    let out = as_nic(rig("behind", &[], &[events])?, nic).run_ok(LIMIT)?;
    out.require_words(&["ok behind"])?;
    out.require(!out.text.contains("lost wake-up"))
}

/// Runs `c/prefetch.c`, which expects these answers.
fn prefetch(nic: Option<&str>, hint: i32, wait: i32) -> Verdict {
    let program = rig("prefetch", &[], &[&hint.to_string(), &wait.to_string()])?;
    as_nic(program, nic).run(LIMIT)?.require_ok()
}

fn room(nic: &str) -> Verdict {
    values("a_request_has_room")?.option("--as-nic", nic).run(LIMIT)?.require_ok()
}

/// The log names each field once, at the default level, and `--check` names the call.
fn cut() -> Verdict {
    let out =
        values("narrow_fields_keep_their_low_bits")?.option("--as-nic", "mlx5").run_ok(LIMIT)?;
    for (field, value, bits, kept) in [
        ("min_rnr_timer", 32, 5, 0),
        ("timeout", 32, 5, 0),
        ("retry_cnt", 8, 3, 0),
        ("rnr_retry", 8, 3, 0),
        ("sl", 16, 4, 0),
    ] {
        let words = format!(
            "adverb: warn: {field} is {value}, which does not fit the {bits} bits of the field: \
             the field becomes {kept}, as on mlx5"
        );
        require!(out.text.matches(&words).count() == 1, "not once {words:?}: {}", out.describe());
        let all = format!("warn: {field} is ");
        require!(out.text.matches(&all).count() == 1, "more of {field}: {}", out.describe());
    }
    let out = values("a_connection_with_wide_values_works")?.flag("--check").run_ok(LIMIT)?;
    out.require_words(&[
        "check: value-cut: timeout is 46",
        "; retry_cnt is 15",
        "in qp_join, rig.h:",
    ])
}

/// A process without CAP_IPC_LOCK can register as much as `ulimit -l` permits.
fn memory() -> Verdict {
    let device = args("-s 1048576")?;
    let limited = |kib: u32| -> Result<_, String> {
        let bytes = format!("--memlock={}", kib * 1024);
        let mut all = words("prlimit");
        all.extend([bytes, "setpriv".into(), "--bounding-set=-ipc_lock".into()]);
        all.extend(words("--inh-caps=-ipc_lock stdbuf -oL ibv_rc_pingpong"));
        all.extend(device.clone());
        let program = Program::new(all[0].clone(), &all[1..]).option("--as-nic", "mlx5");
        program.option("--log", "info").start()
    };
    let out = limited(64)?.wait(LIMIT);
    out.require_words(&["Couldn't register MR", "RLIMIT_MEMLOCK (ulimit -l) is 64 KiB"])?;
    // The program prints this line when all is registered, and waits for its client forever.
    limited(4096)?.wait_for_text("local address", LIMIT)
}

fn unknown() -> Verdict {
    let out = Program::new("echo", &["started"]).option("--as-nic", "cx9").run(LIMIT)?;
    out.require(!out.ok() && !out.text.contains("started"))?;
    let out = Program::new("ibv_rc_pingpong", &args("")?).env("ADVERB_AS_NIC", "cx9").run(LIMIT)?;
    out.require(out.code() == Some(1))?;
    out.require_words(&["Couldn't get context", "cx9", "mlx5, irdma, efa, siw"])
}
