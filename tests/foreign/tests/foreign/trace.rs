//! TRC: the trace of `adverb run --trace`, compared with the program's actions.

use std::collections::HashMap;
use std::time::Duration;

use adverb_foreign::cases::rig;
use adverb_foreign::process::{Program, adverb};
use adverb_foreign::scratch::Scratch;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// As in the program's source.
const MESSAGES: usize = 20;
const BYTES: u64 = 5000;
/// The trace, and the file with its lines.
const TRACE: &str = "a.pftrace";
const LINES: &str = "a.pftrace.jsonl";

pub fn cases() -> Vec<Case> {
    vec![
        case("TRC-1/every_call_of_both_processes", calls),
        case("TRC-2/requests_and_queues", requests),
        case("TRC-3/arrows", || arrows("wire", "RC SEND_FIRST", "RC SEND_LAST")),
        // A packet within the host holds the whole message.
        case("TRC-3/arrows_within_the_host", || arrows("local", "RC SEND_ONLY", "RC SEND_ONLY")),
        case("TRC-5/a_process_that_is_killed", killed),
        case("TRC-6/status_of_the_program", status),
        case("TRC-6/files_that_are_no_trace", other_files),
        case("TRC-6/a_program_that_closes_every_descriptor", reuse),
        case("TRC-6/children_that_nobody_told_of", children),
        case("TRC-6/exit_in_a_signal_handler", handler),
        case("TRC-5/killed_after_vfork", after_vfork),
        case("TRC-6/sigchld_ignored", sigchld),
    ]
}

/// The lines of a trace, and the numbers of the two processes.
struct Trace {
    lines: Vec<Value>,
    by_id: HashMap<u64, usize>,
    sender: u64,
    receiver: u64,
}

/// The program with a trace.
fn traced(program: Program, scratch: &Scratch) -> Program {
    program.option("--trace", scratch.path(TRACE))
}

/// The lines of the trace.
fn lines_of(scratch: &Scratch) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(scratch.file(LINES)).map_err(|e| e.to_string())?;
    text.lines().map(|line| serde_json::from_str(line).map_err(|e| e.to_string())).collect()
}

impl Trace {
    fn of(arguments: &[&str], path: &str) -> Result<Trace, String> {
        let scratch = Scratch::new("trace")?;
        let program = rig("traced", &[], arguments)?.env("ADVERB_PATH", path);
        let out = traced(program, &scratch).run_ok(LIMIT)?;
        let lines = lines_of(&scratch)?;
        let by_id =
            lines.iter().enumerate().filter_map(|(at, l)| Some((l["id"].as_u64()?, at))).collect();
        let number = |word: &str| {
            let mut words = out.text.split_whitespace().skip_while(|w| *w != word);
            words
                .nth(1)
                .and_then(|n| n.parse().ok())
                .ok_or_else(|| format!("no {word}: {}", out.describe()))
        };
        let files = scratch.files()?;
        require!(files.len() == 2, "parts are left: {files:?}");
        Ok(Trace { lines, by_id, sender: number("sender")?, receiver: number("receiver")? })
    }

    fn named<'t>(&'t self, process: u64, name: &'t str) -> impl Iterator<Item = &'t Value> {
        self.lines.iter().filter(move |l| l["process"] == process && l["name"] == name)
    }

    fn count(&self, process: u64, name: &str) -> usize {
        self.named(process, name).count()
    }

    fn require_count(&self, process: u64, name: &str, expected: usize) -> Verdict {
        let found = self.count(process, name);
        require!(found == expected, "{name}: {found} of {expected} in process {process}");
        Ok(())
    }

    /// The nodes with an arrow to this line.
    fn before(&self, line: &Value) -> Vec<&Value> {
        let ids = line["from"].as_array().into_iter().flatten().filter_map(Value::as_u64);
        ids.filter_map(|id| Some(&self.lines[*self.by_id.get(&id)?])).collect()
    }
}

fn calls() -> Verdict {
    let trace = Trace::of(&[], "local")?;
    for process in [trace.sender, trace.receiver] {
        for (call, times) in [
            ("ibv_get_device_list", 1),
            ("ibv_open_device", 1),
            ("ibv_alloc_pd", 1),
            ("ibv_reg_mr", 1),
            ("ibv_create_comp_channel", 1),
            ("ibv_create_cq", 2),
            ("ibv_create_qp", 1),
            ("ibv_modify_qp", 3),
            ("ibv_destroy_qp", 1),
            ("ibv_destroy_cq", 2),
            ("ibv_dereg_mr", 1),
            ("ibv_close_device", 1),
        ] {
            trace.require_count(process, call, times)?;
        }
    }
    trace.require_count(trace.sender, "ibv_post_send", MESSAGES)?;
    trace.require_count(trace.receiver, "ibv_post_recv", MESSAGES)?;
    trace.require_count(trace.receiver, "ibv_req_notify_cq", MESSAGES)?;
    trace.require_count(trace.receiver, "ibv_get_cq_event", MESSAGES)?;
    trace.require_count(trace.receiver, "ibv_ack_cq_events", MESSAGES)?;
    let made = trace.named(trace.sender, "ibv_create_cq").next().ok_or("no CQ")?;
    require!(made["args"]["cqe"] == 64 && made["d"].as_u64() > Some(0), "{made}");
    require!(made["args"]["result"].as_str().is_some_and(|r| r != "0x0"), "{made}");
    let ends = trace.lines.iter().filter(|l| l["ended"] == true && l["dropped"] == 0).count();
    require!(ends == 2, "{ends} processes ended in order");
    Ok(())
}

fn requests() -> Verdict {
    let trace = Trace::of(&[], "local")?;
    for (process, name) in [(trace.sender, "SEND"), (trace.receiver, "RECV")] {
        trace.require_count(process, name, MESSAGES)?;
        let whole =
            trace.named(process, name).all(|l| l["d"].is_u64() && l["args"]["status"] == "SUCCESS");
        require!(whole, "a request of {name} has no end");
        trace.require_count(process, "completion", MESSAGES)?;
        trace.require_count(process, "polled", MESSAGES)?;
    }
    require!(trace.named(trace.sender, "SEND").all(|l| l["args"]["bytes"] == BYTES), "bytes");
    trace.require_count(trace.receiver, "event", MESSAGES)?;
    trace.require_count(trace.receiver, "event taken", MESSAGES)?;
    trace.require_count(trace.receiver, "armed for next", MESSAGES)?;
    // At the end every queue is empty.
    let mut last = HashMap::new();
    for line in trace.lines.iter().filter(|l| l["value"].is_i64()) {
        last.insert((line["process"].as_u64(), line["track"].as_str()), line["value"].as_i64());
    }
    require!(last.len() == 3 && last.values().all(|v| *v == Some(0)), "{last:?}");
    Ok(())
}

/// The arrows lead back from each poll of a message to its post in the other process.
fn arrows(path: &str, first_packet: &str, last_packet: &str) -> Verdict {
    let trace = Trace::of(&[], path)?;
    let id = |line: &Value| line["id"].as_u64();
    let mut posts = Vec::new();
    for polled in trace.named(trace.receiver, "polled") {
        let mut at = polled;
        let mut names = Vec::new();
        while let Some(before) = trace.before(at).first() {
            require!(before["t"].as_u64() <= at["t"].as_u64(), "{before} comes after {at}");
            at = before;
            names.push(at["name"].as_str().unwrap_or_default().to_owned());
            if at["name"] == last_packet && at["process"] == trace.sender {
                break;
            }
        }
        require!(
            names.first().is_some_and(|n| n == "completion")
                && names.last().is_some_and(|n| n == last_packet),
            "{names:?}"
        );
        posts.extend(id(at));
        let event = trace
            .before(polled)
            .into_iter()
            .find(|l| l["name"] == "event taken")
            .ok_or("no event")?;
        let event = *trace.before(event).first().ok_or("an event that nothing made")?;
        require!(event["name"] == "event" && trace.before(event).len() == 1, "{event}");
    }
    posts.dedup();
    require!(posts.len() == MESSAGES, "{} of the last packets", posts.len());
    for first in trace.named(trace.sender, first_packet).filter(|l| l["track"] == "packets sent") {
        let from = trace.before(first);
        require!(from.iter().all(|l| l["name"] == "ibv_post_send"), "{first}");
    }
    let first = trace.named(trace.sender, first_packet);
    let begun = first.filter(|l| !trace.before(l).is_empty()).count();
    require!(begun == MESSAGES, "{begun} posts lead to packets");
    for line in &trace.lines {
        for from in line["from"].as_array().into_iter().flatten() {
            require!(
                from.as_u64().is_some_and(|id| trace.by_id.contains_key(&id)),
                "{line} comes from nothing"
            );
        }
    }
    Ok(())
}

fn killed() -> Verdict {
    let trace = Trace::of(&["killed"], "local")?;
    trace.require_count(trace.receiver, "ibv_get_cq_event", MESSAGES)?;
    trace.require_count(trace.receiver, "ibv_destroy_qp", 0)?;
    trace.require_count(trace.sender, "ibv_destroy_qp", 1)?;
    let ended = |pid: u64| trace.lines.iter().any(|l| l["process"] == pid && l["ended"] == true);
    require!(ended(trace.sender) && !ended(trace.receiver), "who ended in order");
    Ok(())
}

/// The exit status of the run is the program's, for any status.
fn status() -> Verdict {
    let scratch = Scratch::new("status")?;
    let ends = |line: &[&str]| traced(Program::new(line[0], &line[1..]), &scratch).run(LIMIT);
    for (script, code) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255)] {
        let out = ends(&["sh", "-c", script])?;
        require!(out.code() == Some(code), "{script}: {}", out.describe());
    }
    let out = ends(&["sh", "-c", "kill -TERM $$"])?;
    require!(out.code().is_none(), "the signal is not handed on: {}", out.describe());
    let out = ends(&["/no/such/program"])?;
    out.require(out.code() == Some(127))?;
    let files = scratch.files()?;
    require!(files.is_empty(), "files of a run that did not begin: {files:?}");
    Ok(())
}

fn other_files() -> Verdict {
    let scratch = Scratch::new("other")?;
    let run = |line: &str| traced(Program::of_line(line), &scratch).run(LIMIT);
    let no_trace: [(&str, &[u8]); 3] = [
        (TRACE, b"a letter"),
        (TRACE, b"\nnotes that begin with an empty line"),
        (LINES, b"{\"mine\":1}\n"),
    ];
    for (name, text) in no_trace {
        let path = scratch.file(name);
        std::fs::write(&path, text).map_err(|e| e.to_string())?;
        let out = run("true")?;
        let kept = std::fs::read(&path).map_err(|e| e.to_string())?;
        out.require(out.code() == Some(125) && kept == text)?;
        std::fs::remove_file(&path).map_err(|e| e.to_string())?;
        let _ = std::fs::remove_file(scratch.file(TRACE));
    }
    // A new trace replaces an older one.
    for _ in 0..2 {
        run("true")?.require_ok()?;
    }
    // Another file that takes the name while the program runs is not written to.
    let (file, other) = (scratch.path(TRACE), scratch.path("other"));
    let script = format!("rm {file}; ln -s {other} {file}; echo mine > {other}");
    traced(Program::new("sh", &["-c", &script]), &scratch).run_ok(LIMIT)?;
    let kept = std::fs::read(&other).map_err(|e| e.to_string())?;
    require!(kept == b"mine\n", "the file that a link led to was written");
    Ok(())
}

/// Runs a program with one kind of end, and returns the lines of the trace.
fn end_of(arguments: &[&str], ends_well: bool) -> Result<Vec<Value>, String> {
    let scratch = Scratch::new("end")?;
    let out = traced(rig("traced_ends", &[], arguments)?, &scratch).run(LIMIT)?;
    out.require(out.code() == ends_well.then_some(0))?;
    lines_of(&scratch)
}

fn reuse() -> Verdict {
    let lines = end_of(&["reuse"], true)?;
    let lists = lines.iter().filter(|l| l["name"] == "ibv_get_device_list").count();
    require!(lists == 2, "{lists} of 2 calls, one of them after the descriptors were closed");
    Ok(())
}

fn children() -> Verdict {
    let lines = end_of(&["children"], true)?;
    let processes = lines.iter().filter(|l| l["command"].is_array()).count();
    require!(processes == 1, "{processes} processes");
    Ok(())
}

fn handler() -> Verdict {
    for n in 0..20 {
        let lines = end_of(&["handler", &(1000 + n * 777).to_string()], true)?;
        require!(lines.iter().any(|l| l["ended"] == true), "run {n} did not end in order");
    }
    Ok(())
}

fn after_vfork() -> Verdict {
    let lines = end_of(&["vfork"], false)?;
    let ended = lines.iter().filter(|l| l["ended"] == true).count();
    require!(ended == 0, "who was killed ended in order");
    let last = lines.iter().filter(|l| l["name"] == "ibv_query_port").count();
    require!(last > 0, "the last call before the end is missing");
    Ok(())
}

/// SIGCHLD may be ignored in the process that starts the command. Then SIGCHLD is ignored in the
/// program as well.
fn sigchld() -> Verdict {
    let scratch = Scratch::new("sigchld")?;
    let adverb = adverb()?.display().to_string();
    // A shell accepts `trap '' CHLD`, but does not ignore the signal.
    let ignoring = format!("env --ignore-signal=CHLD {adverb}");
    let script = format!(
        "{ignoring} run --trace {0} -- sh -c 'exit 7' 2>&1; echo \"status $?\"; \
         {ignoring} run -- grep SigIgn /proc/self/status 2>&1; \
         {ignoring} hunt --time 1s -- true 2>&1; echo \"hunt $?\"",
        scratch.path(TRACE)
    );
    let out = Program::new("sh", &["-c", &script]).bare().run(LIMIT)?;
    let ignored = out
        .text
        .lines()
        .find_map(|l| u64::from_str_radix(l.strip_prefix("SigIgn:")?.trim(), 16).ok());
    let (child, told) =
        (1 << 16, out.text.contains("status 7") && !out.text.contains("no survivor runs"));
    out.require(ignored.is_some_and(|i| i & child != 0) && told)?;
    out.require(!out.text.contains("hunt 125"))
}
