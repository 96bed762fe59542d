//! Deliberate faults. Both ends must see the same as with rxe at both ends, or the values in the
//! table, which gives the reason.
//!
//! Each row runs three times. The first run (only in the full test) has rxe at both ends, so that
//! the table is checked against the kernel. The other two have Adverb at one end each. `c/faults.h`
//! describes the faults.

use std::time::Duration;

use adverb_foreign::suite::{Case, by_length, short};
use adverb_foreign::{Verdict, require};
use adverb_interop::ends::{Family, Side};
use adverb_interop::pair::{Ends, FROM_RXE, REFERENCE, TO_RXE};

use crate::{counted, peer};

const LIMIT: Duration = Duration::from_secs(90);

/// Output of requester and responder: statuses of completions in order, and the state of the queue
/// pair.
type Seen = (&'static str, &'static str);

/// One fault.
#[derive(Clone, Copy)]
struct Row {
    /// Its name in `c/faults.h`.
    fault: &'static str,
    /// The result of rxe with rxe. It is also expected of Adverb with rxe, unless the next two
    /// fields differ.
    reference: Seen,
    /// Adverb requests.
    requesting: Option<Seen>,
    /// Adverb responds.
    responding: Option<Seen>,
    /// The asynchronous event of Adverb's responder (IBTA 9.9.3). Rxe 6.1 never raises an event.
    event: &'static str,
    /// The reason of a difference.
    why: &'static str,
}

const FLUSHED: &str = "recv=WR_FLUSH_ERR,WR_FLUSH_ERR state=ERR";
const ACCESS: Seen = ("send=REM_ACCESS_ERR,WR_FLUSH_ERR state=ERR", FLUSHED);
const INVALID: Seen = ("send=REM_INV_REQ_ERR,WR_FLUSH_ERR state=ERR", FLUSHED);
/// The request is harmless or lost; the next SEND arrives.
const NEXT_ARRIVES: Seen = ("send=SUCCESS,SUCCESS state=RTS", "recv=SUCCESS state=RTS");
const BOTH_ARRIVE: Seen = ("send=SUCCESS,SUCCESS state=RTS", "recv=SUCCESS,SUCCESS state=RTS");
const NO_RECEIVE: Seen = ("send=RNR_RETRY_EXC_ERR,WR_FLUSH_ERR state=ERR", "recv=none state=RTS");
/// Status of a failed receive in rxe, for any reason.
const RXE_RECEIVE_FAILS: &str = "recv=LOC_QP_OP_ERR,WR_FLUSH_ERR state=ERR";

const TOO_LONG: &str = "IBTA 9.7.4.1.6 wants NAK invalid request and, in the receive, a length error; rxe sends a remote \
                        operational error (docs/design/choices.md)";
const DROPPED: &str = "a message that is too long is dropped, and the receive serves the next one (docs/design/choices.md); \
                       rxe breaks the queue pair";

const fn row(fault: &'static str, reference: Seen) -> Row {
    Row { fault, reference, requesting: None, responding: None, event: "none", why: "" }
}

const fn access(fault: &'static str) -> Row {
    Row { event: "ACCESS_ERR", ..row(fault, ACCESS) }
}

const fn invalid(fault: &'static str) -> Row {
    Row { event: "REQ_ERR", ..row(fault, INVALID) }
}

const fn responds(fault: &'static str, reference: Seen, ours: Seen, why: &'static str) -> Row {
    Row { responding: Some(ours), why, ..row(fault, reference) }
}

const ROWS: &[Row] = &[
    access("rkey_write"),
    access("rkey_read"),
    access("rkey_cas"),
    row("rkey_empty_write", NEXT_ARRIVES),
    row("rkey_empty_read", NEXT_ARRIVES),
    access("beyond_write"),
    access("beyond_long_write"),
    access("beyond_read"),
    access("mr_right_write"),
    access("mr_right_read"),
    access("mr_right_cas"),
    invalid("qp_right_write"),
    invalid("qp_right_read"),
    invalid("qp_right_cas"),
    Row {
        requesting: Some(INVALID),
        why: "rxe refuses it when it is posted, in its own driver; we, as hardware does, leave it to the responder",
        ..row("misaligned_cas", ("post=EINVAL send=SUCCESS state=RTS", "recv=SUCCESS state=RTS"))
    },
    responds(
        "oversize_send",
        ("send=REM_OP_ERR,WR_FLUSH_ERR state=ERR", RXE_RECEIVE_FAILS),
        ("send=REM_INV_REQ_ERR,WR_FLUSH_ERR state=ERR", "recv=LOC_LEN_ERR,WR_FLUSH_ERR state=ERR"),
        TOO_LONG,
    ),
    responds(
        "oversize_long_send",
        ("send=REM_OP_ERR,WR_FLUSH_ERR state=ERR", RXE_RECEIVE_FAILS),
        ("send=REM_INV_REQ_ERR,WR_FLUSH_ERR state=ERR", "recv=LOC_LEN_ERR,WR_FLUSH_ERR state=ERR"),
        TOO_LONG,
    ),
    responds(
        "receive_key",
        ("send=REM_OP_ERR,WR_FLUSH_ERR state=ERR", RXE_RECEIVE_FAILS),
        ("send=REM_OP_ERR,WR_FLUSH_ERR state=ERR", "recv=LOC_PROT_ERR,WR_FLUSH_ERR state=ERR"),
        "the receive says which of its faults it was (IBTA 11.6.2)",
    ),
    row("no_receive", NO_RECEIVE),
    row("no_receive_write_imm", NO_RECEIVE),
    // The SEND is acknowledged, and then the responder is silent (IBTA 9.9.6.3, class J).
    row(
        "invalidate_key",
        ("send=SUCCESS,RETRY_EXC_ERR state=ERR", "recv=REM_INV_REQ_ERR,WR_FLUSH_ERR state=ERR"),
    ),
    row("gone", ("send=RETRY_EXC_ERR,WR_FLUSH_ERR state=ERR", FLUSHED)),
    row("uc_rkey_write", NEXT_ARRIVES),
    responds(
        "uc_oversize_send",
        ("send=SUCCESS,SUCCESS state=RTS", RXE_RECEIVE_FAILS),
        NEXT_ARRIVES,
        DROPPED,
    ),
    row("uc_no_receive", ("send=SUCCESS,SUCCESS state=RTS", "recv=none state=RTS")),
    row("ud_qkey", NEXT_ARRIVES),
    responds(
        "ud_oversize_send",
        ("send=SUCCESS,SUCCESS state=RTS", RXE_RECEIVE_FAILS),
        NEXT_ARRIVES,
        DROPPED,
    ),
];

/// Receives posted 300 ms late, and their completions.
const LATE: &[Row] = &[
    row("late_receive", BOTH_ARRIVE),
    row("late_receive_long", BOTH_ARRIVE),
    row("late_receive_write_imm", BOTH_ARRIVE),
];
/// RNR timer codes: 0.01, 0.64, 10.24 and 491.52 ms, and 0, which is the longest with 655.36 ms
/// (IBTA table 45).
const TIMERS: &[&str] = &["1", "12", "20", "31", "0"];

pub fn push(cases: &mut Vec<Case>) {
    for row in ROWS {
        let retries = ["-t", "14", "-R", "3", "-N", "3"];
        add(cases, format!("faults/{}", row.fault), "faults", *row, retries.to_vec());
    }
    for row in LATE {
        for timer in TIMERS {
            if short() && *timer != "12" {
                continue;
            }
            let name = format!("faults/{}/rnr_timer_{timer}", row.fault);
            add(cases, name, "receives posted late", *row, vec!["-N", "7", "-n", timer]);
        }
    }
}

fn add(
    cases: &mut Vec<Case>,
    name: String,
    group: &'static str,
    row: Row,
    options: Vec<&'static str>,
) {
    for family in [Family::V4, Family::V6] {
        // Results of a fault do not depend on the address family. A few rows check this.
        if family == Family::V6 && !matches!(row.fault, "rkey_write" | "oversize_send" | "ud_qkey")
        {
            continue;
        }
        // The short run trusts the reference in this table.
        for ends in by_length(&[REFERENCE, TO_RXE, FROM_RXE][..], &[TO_RXE, FROM_RXE][..]) {
            let (ends, options) = (*ends, options.clone());
            cases.push(counted(name.clone(), group.to_string(), ends, family, move || {
                provoke(&row, &options, ends, family)
            }));
        }
    }
}

fn provoke(row: &Row, options: &[&str], ends: Ends, family: Family) -> Verdict {
    let expected = match (ends.client, ends.server) {
        (Side::Adverb, _) => row.requesting.unwrap_or(row.reference),
        (_, Side::Adverb) => row.responding.unwrap_or(row.reference),
        _ => row.reference,
    };
    let event = if ends.server == Side::Adverb { row.event } else { "none" };
    let outcome = ends.run_ok(
        |end| {
            let fault = ["-a", end.address(family), "-x", row.fault];
            Ok(end.program(peer(end)?, &[&fault[..], options].concat()))
        },
        LIMIT,
    )?;
    for (end, seen) in [
        (&outcome.client, format!("END {} events=none", expected.0)),
        (&outcome.server, format!("END {} events={event}", expected.1)),
    ] {
        require!(
            end.text.lines().any(|l| l == seen),
            "expected {seen:?}{}{}\n{}",
            if row.why.is_empty() { "" } else { "; where the two differ: " },
            row.why,
            outcome.describe()
        );
    }
    Ok(())
}
