//! Every operation, every byte checked at both ends.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::suite::{Case, by_length, short};
use adverb_interop::ends::{Family, Side};
use adverb_interop::pair::{Ends, FROM_RXE, TO_RXE};

use crate::{counted, peer};

const LIMIT: Duration = Duration::from_secs(240);
const RC: &str = "send,send_imm,send_inv,write,write_imm,read,cas,fadd";
const UC: &str = "send,send_imm,write,write_imm";
const UD: &str = "send,send_imm";
/// All operations but `send_inv`, in one burst. The windows of `send_inv` are bound on the
/// responder's own send queue.
const TOGETHER: &str = "send,write,read,fadd,send_imm,write_imm,cas";

/// One run of the peer program.
#[derive(Clone, Debug)]
struct Run {
    transport: &'static str,
    operations: &'static str,
    mtu: u32,
    window: u32,
    sizes: String,
    /// Faults of packets at Adverb's end (`ADVERB_FAULT`).
    fault: &'static str,
}

impl Run {
    fn new(
        transport: &'static str,
        operations: &'static str,
        mtu: u32,
        window: u32,
        sizes: &str,
    ) -> Self {
        Run { transport, operations, mtu, window, sizes: sizes.to_string(), fault: "" }
    }
}

pub fn push(cases: &mut Vec<Case>) {
    let mtus = by_length(&[256, 512, 1024, 2048, 4096][..], &[256, 4096][..]);
    for &mtu in mtus {
        let sizes = around(mtu);
        for op in RC.split(',') {
            add(cases, op, Run::new("rc", op, mtu, 3, &sizes));
        }
        add(cases, "together", Run::new("rc", TOGETHER, mtu, 14, &sizes));
        for op in UC.split(',') {
            add(cases, op, Run::new("uc", op, mtu, 3, &sizes));
        }
    }
    // Requests are sent again, and READs for their missing part.
    let faults = ["drop=2%,seed=1", "drop=2%,seed=2", "drop=5%,seed=3"];
    for fault in by_length(&faults[..], &faults[..1]) {
        for mtu in [256, 1024] {
            add(cases, fault, Run { fault, ..Run::new("rc", TOGETHER, mtu, 14, &around(mtu)) });
        }
    }
    // UD has the port's MTU, and one packet for each message.
    for op in UD.split(',') {
        add(cases, op, Run::new("ud", op, 4096, 8, "0,1,2,3,4,5,255,1024,4095,4096"));
    }
    for &mtu in by_length(&[256, 1024, 4096][..], &[4096][..]) {
        for op in ["send", "write", "read"] {
            add(cases, &format!("{op}_large"), Run::new("rc", op, mtu, 1, "1048577,8388608"));
        }
    }
}

/// Sizes at which padding, packet count or the window of unacknowledged packets change.
fn around(mtu: u32) -> String {
    let all = [
        0,
        1,
        2,
        3,
        4,
        5,
        8,
        100,
        mtu - 1,
        mtu,
        mtu + 1,
        2 * mtu,
        5 * mtu + 3,
        40 * mtu - 1,
        150 * mtu,
    ];
    all.map(|n| n.to_string()).join(",")
}

fn add(cases: &mut Vec<Case>, what: &str, run: Run) {
    for family in [Family::V4, Family::V6] {
        // The short run alternates between the two families.
        if short() && run.transport != "ud" && (run.mtu == 256) == (family == Family::V4) {
            continue;
        }
        for ends in [TO_RXE, FROM_RXE] {
            let (name, row) = (
                format!("operations/{}/{what}/mtu_{}", run.transport, run.mtu),
                format!("{} {what}", run.transport),
            );
            let run = run.clone();
            cases.push(counted(name, row, ends, family, move || exchange(&run, ends, family)));
        }
    }
}

fn exchange(run: &Run, ends: Ends, family: Family) -> Verdict {
    let outcome = ends.run_ok(
        |end| {
            let (mtu, window) = (run.mtu.to_string(), run.window.to_string());
            let options =
                ["-a", end.address(family), "-q", run.transport, "-m", &mtu, "-w", &window];
            let work = ["-o", run.operations, "-s", &run.sizes];
            let program = end.program(peer(end)?, &[&options[..], &work[..]].concat());
            let ours = end == Side::Adverb && !run.fault.is_empty();
            Ok(if ours { program.env("ADVERB_FAULT", run.fault) } else { program })
        },
        LIMIT,
    )?;
    outcome.require_of_both(&["OK "], &["FAIL"])
}
