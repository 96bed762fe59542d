//! Unmodified programs under `adverb run --fault`: reliable transports lose no byte, and expected
//! failures appear in the program's own words.

use std::time::Duration;

use adverb_foreign::cc::{compile_with, source_dir};
use adverb_foreign::device::on_loopback;
use adverb_foreign::pair::{Pair, PairOutcome};
use adverb_foreign::process::{Finished, Program};
use adverb_foreign::suite::{Case, by_length, case};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(120);
/// Loss, duplicates, reordering and damage together. A ping-pong program exits without notice when
/// it has received everything. So its last acknowledgement must not be lost, because the other end
/// would never get it.
const MIX: &str = "drop=2%,dup=2%,reorder=3%,corrupt=1%,first=200,seed=11";

/// The same for the first `packets` packets of each queue pair and kind.
fn mix_first(packets: u32) -> String {
    MIX.replace("first=200", &format!("first={packets}"))
}

/// The worst faults that Adverb promises to survive, from the first packet to the last.
const STORM: &str = "drop=5%,dup=1%,reorder=5%,corrupt=0.1%,seed=11";

/// The same faults for the first `packets` packets of each queue pair and kind, for programs that
/// exit as above.
fn storm_first(packets: u32) -> String {
    format!("{STORM},first={packets}")
}

pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    pingpongs(&mut cases);
    perftests(&mut cases);
    cases.push(case("rnr/receives_come_late", receives_come_late));
    cases.push(case("kill_qp/both_ends_are_told", both_ends_are_told));
    for (call, message) in [
        ("open_device", "Couldn't get context"),
        ("create_comp_channel", "Couldn't create completion channel"),
        ("alloc_pd", "Couldn't allocate PD"),
        ("reg_mr", "Couldn't register MR"),
        ("create_cq", "Couldn't create CQ"),
        ("create_qp", "Couldn't create QP"),
        ("modify_qp", "Failed to modify QP to INIT"),
    ] {
        cases.push(case(format!("fail/{call}"), move || call_fails(call, message)).once());
    }
    cases.push(case("FLT-2/a_lost_rep_is_sent_again", lost_rep));
    cases.push(case("FLT-2/a_request_is_refused", request_refused));
    cases.push(case("bad_text/run_refuses", run_refuses).once());
    cases.push(case("bad_text/open_fails", open_fails).once());
    cases
}

/// Packets with a fault at either end.
fn met(outcome: &PairOutcome) -> u64 {
    const NAMES: [&str; 5] =
        ["fault_drop", "fault_dup", "fault_reorder", "fault_corrupt", "fault_delay"];
    NAMES.iter().map(|name| outcome.server.counter(name) + outcome.client.counter(name)).sum()
}

fn pingpongs(cases: &mut Vec<Case>) {
    let n = by_length(1000, 300);
    for (program, flags, spec) in [
        ("ibv_rc_pingpong", format!("-s 1024 -n {n}"), MIX.to_string()),
        // A message causes at least one acknowledgement. The faults end before the last messages,
        // because the server may have exited when the client asks for a lost acknowledgement again.
        ("ibv_rc_pingpong", format!("-s 65537 -n {} -m 1024", n * 3 / 10), mix_first(n / 5)),
        ("ibv_rc_pingpong", format!("-s 4096 -n {n} -e"), MIX.to_string()),
        // Sixteen queue pairs share the messages, and the client ends when all of them together
        // have received enough. A queue pair that waits for a timeout then would lose its peer. So
        // these cases have no loss.
        ("ibv_srq_pingpong", format!("-s 1024 -n {n}"), "dup=5%,reorder=5%,seed=11".to_string()),
        ("ibv_rc_pingpong", format!("-s 2048 -n {n}"), storm_first(n * 8 / 10)),
        ("ibv_rc_pingpong", format!("-s 65537 -n {} -m 2048", n * 3 / 10), storm_first(n / 4)),
        ("ibv_xsrq_pingpong", format!("-s 2048 -n {n}"), storm_first(n / 4)),
        ("ibv_rc_pingpong", format!("-n {n}"), "delay=500us±500us".into()),
        // Unacknowledged, but late and doubled packets are no loss. Both transports go directly
        // from process to process.
        ("ibv_uc_pingpong", format!("-n {n}"), "delay=1ms+-1ms".into()),
        ("ibv_ud_pingpong", format!("-n {n} -e"), "delay=300us".into()),
    ] {
        let fault = if spec.starts_with(STORM) { "storm" } else { first_fault(&spec) };
        let name = format!("pingpong/{}/{}/{fault}", &program[4..], flags.replace(' ', ""));
        cases.push(case(name, move || pingpong(program, &flags, &spec, "wire")).once());
    }
    // Within the host. The client of `ibv_srq_pingpong` ends while sends of its server that it does
    // not need are outstanding. These sends fail after a moment, and the server ends before.
    for (program, flags, spec) in [
        ("ibv_rc_pingpong", format!("-s 1024 -n {n}"), MIX.to_string()),
        ("ibv_rc_pingpong", format!("-s 300000 -n {}", n * 3 / 10), mix_first(n / 5)),
        ("ibv_rc_pingpong", format!("-s 4096 -n {n} -e"), MIX.to_string()),
        ("ibv_rc_pingpong", format!("-s 2048 -n {n}"), storm_first(n * 8 / 10)),
        (
            "ibv_rc_pingpong",
            format!("-s 1024 -n {n} -e"),
            "dup=5%,reorder=5%,first=200,seed=11".into(),
        ),
        ("ibv_srq_pingpong", format!("-s 1024 -n {n}"), "dup=5%,reorder=5%,seed=11".into()),
        ("ibv_rc_pingpong", format!("-n {n}"), "delay=500us±500us".into()),
    ] {
        let spec = without_damage(&spec);
        let (fault, flags_word) = (first_fault(&spec), flags.replace(' ', ""));
        let name = format!("FLT-5/{}/{flags_word}/{fault}", &program[4..]);
        cases.push(case(name, move || pingpong(program, &flags, &spec, "local")).once());
    }
}

fn first_fault(spec: &str) -> &str {
    spec.split(['=', ',']).next().unwrap_or_default()
}

/// The same without damaged bits, which do not exist within the host.
fn without_damage(spec: &str) -> String {
    let items: Vec<&str> = spec.split(',').filter(|item| !item.starts_with("corrupt=")).collect();
    items.join(",")
}

fn pingpong(program: &str, flags: &str, spec: &str, path: &str) -> Verdict {
    // The option -c of this program is the number of clients. The program does not check bytes, and
    // prints less.
    let (check, done) =
        if program == "ibv_xsrq_pingpong" { ("", "success") } else { ("-c", "iters in") };
    let args = on_loopback("-g", &format!("{flags} {check}"))?;
    let pair = Pair::new(program, &args, LIMIT).option("--fault", spec).option("--log", "info");
    let outcome = pair.env("ADVERB_PATH", path).run_ok()?;
    stays_on(path, &outcome)?;
    outcome.require_of_both(
        &[done],
        &["invalid data", "Failed status", "Couldn't", "parse WC failed"],
    )?;
    require!(met(&outcome) > 0, "no packet met a fault:\n{}", outcome.describe());
    Ok(())
}

fn perftests(cases: &mut Vec<Case>) {
    let n = by_length(1000, 200);
    for (program, flags, spec) in [
        ("ib_send_bw", format!("-s 4096 -n {n}"), MIX),
        ("ib_write_bw", format!("-s 65536 -n {n} -q 4"), MIX),
        ("ib_read_bw", format!("-s 65536 -n {n}"), MIX),
        ("ib_atomic_bw", format!("-n {n}"), MIX),
        ("ib_send_lat", format!("-s 64 -n {n}"), MIX),
        ("ib_read_lat", format!("-s 4096 -n {n}"), MIX),
        ("ib_write_bw", format!("-s 1048576 -n {}", n / 10), STORM),
        ("ib_send_bw", format!("-s 1048576 -n {}", n / 10), STORM),
        ("ib_read_bw", format!("-s 1048576 -n {}", n / 10), STORM),
        ("ib_atomic_bw", format!("-n {n}"), STORM),
        ("ib_write_lat", format!("-s 64 -n {n}"), STORM),
        ("ib_send_lat", format!("-s 9000 -n {n}"), STORM),
        ("ib_atomic_lat", format!("-n {n}"), STORM),
    ] {
        let what = if spec == STORM { format!("{program}/storm") } else { program.to_string() };
        let (near, near_spec) = (flags.clone(), without_damage(spec));
        let wire = move || perftest(program, &flags, spec, "wire");
        let local = move || perftest(program, &near, &near_spec, "local");
        cases.push(case(format!("perftest/{what}"), wire).once());
        cases.push(case(format!("FLT-5/{what}"), local).once());
    }
    for (program, flags) in [("ib_write_lat", "-s 64 -n 200"), ("ib_send_lat", "-s 64 -n 200")] {
        let spec = "delay=300us+-200us";
        let name = format!("FLT-5/{program}/delay");
        cases.push(case(name, move || perftest(program, flags, spec, "local")).once());
    }
}

/// Packets of reliable queue pairs took the same path as without faults.
fn stays_on(path: &str, outcome: &PairOutcome) -> Verdict {
    for end in [&outcome.server, &outcome.client] {
        let near = end.counter("ring_sent") + end.counter("qp_one_sided");
        let good = if path == "local" { end.counter("tx_packets") == 0 } else { near == 0 };
        require!(good, "not on the path {path:?}:\n{}", outcome.describe());
    }
    let near = outcome.client.counter("ring_sent") + outcome.client.counter("qp_one_sided");
    require!(path == "wire" || near > 0, "nothing went within the host:\n{}", outcome.describe());
    Ok(())
}

fn perftest(program: &str, flags: &str, spec: &str, path: &str) -> Verdict {
    let args = on_loopback("-x", flags)?;
    let pair = Pair::new(program, &args, LIMIT).option("--fault", spec).option("--log", "info");
    let outcome = pair.env("ADVERB_PATH", path).run_ok()?;
    stays_on(path, &outcome)?;
    let bad = ["Completion with error", "Failed status", "Couldn't"];
    let bad = bad.iter().find(|words| outcome.client.text.contains(**words));
    require!(bad.is_none(), "{bad:?} in the output:\n{}", outcome.describe());
    require!(met(&outcome) > 0, "no packet met a fault:\n{}", outcome.describe());
    Ok(())
}

fn receives_come_late() -> Verdict {
    let args = on_loopback("-g", "-n 100 -c")?;
    let outcome = Pair::new("ibv_rc_pingpong", &args, LIMIT)
        .option("--fault", "rnr=50ms")
        .option("--log", "info")
        .run_ok()?;
    let count = outcome.server.counter("fault_rnr");
    require!(count > 0, "no receive looked absent:\n{}", outcome.describe());
    Ok(())
}

/// The queue pair that is killed flushes its work. Its peer gets no more packets.
fn both_ends_are_told() -> Verdict {
    let args = on_loopback("-g", "-n 1000 -c")?;
    let both = Program::new("ibv_rc_pingpong", &args);
    let client = both.clone().option("--fault", "kill-qp=1@after=40");
    let outcome = Pair::of(both, client, LIMIT).run()?;
    let (client, server) = (&outcome.client, &outcome.server);
    require!(client.code() == Some(1), "the client did not fail:\n{}", outcome.describe());
    client
        .require_words(&["Failed status Work Request Flushed Error", "injected: queue pair 0x"])?;
    require!(!server.ok(), "the server noticed nothing:\n{}", outcome.describe());
    Ok(())
}

fn call_fails(call: &str, message: &str) -> Verdict {
    let args = on_loopback("-g", "-e")?;
    let out = Program::new("ibv_rc_pingpong", &args)
        .option("--fault", format!("fail={call}@1"))
        .run(LIMIT)?;
    out.require(out.code() == Some(1))?;
    out.require_words(&[message, &format!("injected: call 1 of {call} fails with ENOMEM")])
}

/// A server and a client over librdmacm in one process.
fn connections(spec: &str) -> Result<Finished, String> {
    let source = source_dir().join("../../corpus/c/early_receive.c");
    let include = format!("-I{}", source_dir().display());
    let flags = ["-O2", include.as_str(), "-Wl,--no-as-needed", "-lrdmacm"];
    let program = compile_with("cc", &flags, &source, "faults_connections")?;
    Program::of_file(&program).option("--fault", spec).run(LIMIT)
}

fn lost_rep() -> Verdict {
    connections("cm-drop=rep@1")?.passed()?.require_words(&["injected: REP number 1 is lost"])
}

fn request_refused() -> Verdict {
    let out = connections("cm-reject=1@reason=3")?;
    out.require(out.code() == Some(1))?;
    out.require_words(&[
        "injected: request 1 for a connection is refused",
        "RDMA_CM_EVENT_REJECTED instead of",
    ])
}

fn run_refuses() -> Verdict {
    let out = Program::new("echo", &["started"]).option("--fault", "drop=1").run(LIMIT)?;
    out.require(out.code() == Some(125) && !out.text.contains("started"))?;
    out.require_words(&["drop=1%"])
}

fn open_fails() -> Verdict {
    let args = on_loopback("-g", "")?;
    let out =
        Program::new("ibv_rc_pingpong", &args).env("ADVERB_FAULT", "reorder=fast").run(LIMIT)?;
    out.require(out.code() == Some(1))?;
    out.require_words(&["Couldn't get context", "reorder=fast", "reorder=5%"])
}
