//! Connections by address between the kernel's connection manager and Adverb's: Debian's
//! rdmacm-utils, and perftest's `-R`.

use std::time::Duration;

use adverb_foreign::pair::{TCP, UDP};
use adverb_foreign::process::columns;
use adverb_foreign::suite::{Case, by_length};
use adverb_foreign::{Verdict, require};
use adverb_interop::connections::Lines;
use adverb_interop::ends::{Family, Side};
use adverb_interop::mads::SlowMads;
use adverb_interop::pair::{Ends, FROM_RXE, TO_RXE};

use crate::counted;

const LIMIT: Duration = Duration::from_secs(120);

/// A name, the command lines of a server and a client, the client's text after success, and its
/// number of occurrences.
type Row = (&'static str, &'static str, &'static str, &'static str, usize);

const PINGS: &str = "ping data: rdma-ping-";
const DONE: &str = "return status 0";

const ROWS: [Row; 9] = [
    (
        "rping",
        "rping -s -a SERVER -p PORT -v -C 100",
        "rping -c -a SERVER -p PORT -v -C 100",
        PINGS,
        100,
    ),
    (
        "rping_validates",
        "rping -s -a SERVER -p PORT -v -C 50 -V -S 65000",
        "rping -c -a SERVER -p PORT -v -C 50 -V -S 65000",
        PINGS,
        50,
    ),
    (
        "rping_own_queue_pair",
        "rping -s -a SERVER -p PORT -v -C 50 -q",
        "rping -c -a SERVER -p PORT -v -C 50 -q",
        PINGS,
        50,
    ),
    ("ucmatose", "ucmatose -b SERVER -p PORT -c 50", "ucmatose -s SERVER -p PORT -c 50", DONE, 1),
    (
        "ucmatose_many",
        "ucmatose -b SERVER -p PORT -c 300 -C 3",
        "ucmatose -s SERVER -p PORT -c 300 -C 3",
        DONE,
        1,
    ),
    (
        "ucmatose_migrates",
        "ucmatose -b SERVER -p PORT -c 50 -m",
        "ucmatose -s SERVER -p PORT -c 50 -m",
        DONE,
        1,
    ),
    (
        "ucmatose_options",
        "ucmatose -b SERVER -p PORT -c 2 -t 96 -a 14",
        "ucmatose -s SERVER -p PORT -c 2 -t 96 -a 14",
        DONE,
        1,
    ),
    ("udaddy", "udaddy -b SERVER -c 20", "udaddy -s SERVER -c 20", DONE, 1),
    (
        "rdma_client",
        "rdma_server -s SERVER -p PORT",
        "rdma_client -s SERVER -p PORT",
        "rdma_client: end 0",
        1,
    ),
];
/// The rows of the short run.
const SHORT: [&str; 3] = ["rping", "ucmatose", "udaddy"];

/// Runs of perftest with `-R`: name, and program with options.
const PERFTEST: [(&str, &str); 10] = [
    ("ib_send_bw", "ib_send_bw"),
    ("ib_send_lat", "ib_send_lat"),
    ("ib_write_bw", "ib_write_bw"),
    ("ib_write_lat", "ib_write_lat"),
    ("ib_read_bw", "ib_read_bw"),
    ("ib_read_lat", "ib_read_lat"),
    ("ib_atomic_bw", "ib_atomic_bw"),
    ("ib_atomic_lat", "ib_atomic_lat"),
    ("ib_write_bw_4_queue_pairs", "ib_write_bw -q 4"),
    ("ib_send_lat_ud", "ib_send_lat -c UD"),
];
const PERFTEST_SHORT: [&str; 2] = ["ib_send_bw", "ib_read_lat"];

pub fn push(cases: &mut Vec<Case>) {
    for (at, row) in ROWS.iter().filter(|r| by_length(true, SHORT.contains(&r.0))).enumerate() {
        for (family, ends) in pairs(at) {
            cases.push(counted(
                format!("connections/{}", row.0),
                row.0.into(),
                ends,
                family,
                move || programs(*row, ends, family),
            ));
        }
    }
    let rows = PERFTEST.iter().filter(|(name, _)| by_length(true, PERFTEST_SHORT.contains(name)));
    for &(name, program) in rows {
        // This version of perftest resolves addresses as IPv4 only.
        for ends in by_length(&[FROM_RXE, TO_RXE][..], &[FROM_RXE][..]) {
            let (family, ends) = (Family::V4, *ends);
            let (case, row) = (format!("connections/{name}"), format!("{name} -R"));
            cases.push(counted(case, row, ends, family, move || figures(program, ends, family)));
        }
    }
}

/// Both families in both directions. The short run alternates between the families.
fn pairs(at: usize) -> Vec<(Family, Ends)> {
    let all = [
        (Family::V4, TO_RXE),
        (Family::V6, FROM_RXE),
        (Family::V6, TO_RXE),
        (Family::V4, FROM_RXE),
    ];
    by_length(all.to_vec(), all[at % 2 * 2..][..2].to_vec())
}

fn programs(row: Row, ends: Ends, family: Family) -> Verdict {
    let (name, server, client, says, times) = row;
    // This program has no option for the port.
    let place = if name == "udaddy" { (UDP, Some(7174)) } else { (TCP, None) };
    let outcome = Lines { server, client, place }.pair(ends, family, LIMIT).run_ok()?;
    let said = outcome.client.text.matches(says).count();
    require!(said >= times, "{said} times {says:?}, not {times}\n{}", outcome.describe());
    Ok(())
}

/// The client connects a second time, to a server that listens again. perftest fails if the second
/// request arrives before the server listens (reason 8). An emulated server is slower than a client
/// on the host, unless the network delays the request.
fn figures(program: &str, ends: Ends, family: Family) -> Verdict {
    let _slow = if ends.server == Side::Rxe { Some(SlowMads::begin()?) } else { None };
    let server = format!("{program} -F -R -p PORT -n 100");
    let client = format!("{server} SERVER");
    let lines = Lines { server: &server, client: &client, place: (TCP, None) };
    let outcome = lines.pair(ends, family, LIMIT).run_ok()?;
    let rows = columns(&outcome.client.text);
    require!(rows.len() == 1 && rows[0][1] >= 1.0, "no line of figures\n{}", outcome.describe());
    Ok(())
}
