//! Connections by address between the kernel's connection manager and Adverb's: Debian's
//! rdmacm-utils, and perftest's `-R`.

use std::time::Duration;

use adverb_foreign::pair::{TCP, UDP};
use adverb_foreign::suite::{Case, by_length};
use adverb_foreign::{Verdict, require};
use adverb_interop::connections::Lines;
use adverb_interop::ends::{Family, Side};
use adverb_interop::mads::SlowMads;
use adverb_interop::pair::{Ends, FROM_RXE, TO_RXE};

use crate::counted;
use crate::perftest::results;

const LIMIT: Duration = Duration::from_secs(120);

/// One pair of programs.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// Whether the short run includes the pair.
    short: bool,
    lines: Lines,
    /// The client's text after success, and its number of occurrences.
    says: (&'static str, usize),
}

const PINGS: &str = "ping data: rdma-ping-";
const DONE: (&str, usize) = ("return status 0", 1);

const fn lines(server: &'static str, client: &'static str) -> Lines {
    Lines { server, client, place: (TCP, None) }
}

const ROWS: &[Row] = &[
    Row {
        name: "rping",
        short: true,
        lines: lines(
            "rping -s -a SERVER -p PORT -v -C 100",
            "rping -c -a SERVER -p PORT -v -C 100",
        ),
        says: (PINGS, 100),
    },
    Row {
        name: "rping_validates",
        short: false,
        lines: lines(
            "rping -s -a SERVER -p PORT -v -C 50 -V -S 65000",
            "rping -c -a SERVER -p PORT -v -C 50 -V -S 65000",
        ),
        says: (PINGS, 50),
    },
    Row {
        name: "rping_own_queue_pair",
        short: false,
        lines: lines(
            "rping -s -a SERVER -p PORT -v -C 50 -q",
            "rping -c -a SERVER -p PORT -v -C 50 -q",
        ),
        says: (PINGS, 50),
    },
    Row {
        name: "ucmatose",
        short: true,
        lines: lines("ucmatose -b SERVER -p PORT -c 50", "ucmatose -s SERVER -p PORT -c 50"),
        says: DONE,
    },
    Row {
        name: "ucmatose_many",
        short: false,
        lines: lines(
            "ucmatose -b SERVER -p PORT -c 300 -C 3",
            "ucmatose -s SERVER -p PORT -c 300 -C 3",
        ),
        says: DONE,
    },
    Row {
        name: "ucmatose_migrates",
        short: false,
        lines: lines("ucmatose -b SERVER -p PORT -c 50 -m", "ucmatose -s SERVER -p PORT -c 50 -m"),
        says: DONE,
    },
    Row {
        name: "ucmatose_options",
        short: false,
        lines: lines(
            "ucmatose -b SERVER -p PORT -c 2 -t 96 -a 14",
            "ucmatose -s SERVER -p PORT -c 2 -t 96 -a 14",
        ),
        says: DONE,
    },
    Row {
        name: "udaddy",
        short: true,
        lines: Lines {
            place: (UDP, Some(7174)),
            ..lines("udaddy -b SERVER -c 20", "udaddy -s SERVER -c 20")
        },
        says: DONE,
    },
    Row {
        name: "rdma_client",
        short: false,
        lines: lines("rdma_server -s SERVER -p PORT", "rdma_client -s SERVER -p PORT"),
        says: ("rdma_client: end 0", 1),
    },
];

/// Name, and the command lines of server and client.
const fn perftest(
    name: &'static str,
    server: &'static str,
    client: &'static str,
) -> (&'static str, Lines) {
    (name, lines(server, client))
}

const PERFTEST: &[(&str, Lines)] = &[
    perftest(
        "ib_send_bw",
        "ib_send_bw -F -R -p PORT -n 100",
        "ib_send_bw -F -R -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_send_lat",
        "ib_send_lat -F -R -p PORT -n 100",
        "ib_send_lat -F -R -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_write_bw",
        "ib_write_bw -F -R -p PORT -n 100",
        "ib_write_bw -F -R -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_write_lat",
        "ib_write_lat -F -R -p PORT -n 100",
        "ib_write_lat -F -R -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_read_bw",
        "ib_read_bw -F -R -p PORT -n 100",
        "ib_read_bw -F -R -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_read_lat",
        "ib_read_lat -F -R -p PORT -n 100",
        "ib_read_lat -F -R -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_atomic_bw",
        "ib_atomic_bw -F -R -p PORT -n 100",
        "ib_atomic_bw -F -R -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_atomic_lat",
        "ib_atomic_lat -F -R -p PORT -n 100",
        "ib_atomic_lat -F -R -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_write_bw_4_queue_pairs",
        "ib_write_bw -F -R -q 4 -p PORT -n 100",
        "ib_write_bw -F -R -q 4 -p PORT -n 100 SERVER",
    ),
    perftest(
        "ib_send_lat_ud",
        "ib_send_lat -F -R -c UD -p PORT -n 100",
        "ib_send_lat -F -R -c UD -p PORT -n 100 SERVER",
    ),
];
const PERFTEST_SHORT: [&str; 2] = ["ib_send_bw", "ib_read_lat"];

pub fn push(cases: &mut Vec<Case>) {
    for (at, row) in ROWS.iter().filter(|r| by_length(true, r.short)).enumerate() {
        for (family, ends) in pairs(at) {
            let name = format!("connections/{}", row.name);
            cases.push(counted(name, row.name.into(), ends, family, move || {
                programs(*row, ends, family)
            }));
        }
    }
    let rows = PERFTEST.iter().filter(|(name, _)| by_length(true, PERFTEST_SHORT.contains(name)));
    for &(name, lines) in rows {
        // This version of perftest resolves addresses as IPv4 only.
        for ends in by_length(&[FROM_RXE, TO_RXE][..], &[FROM_RXE][..]) {
            let (family, ends) = (Family::V4, *ends);
            let (case, row) = (format!("connections/{name}"), format!("{name} -R"));
            cases.push(counted(case, row, ends, family, move || figures(lines, ends, family)));
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
    let outcome = row.lines.pair(ends, family, LIMIT).run_ok()?;
    let (says, times) = row.says;
    let said = outcome.client.text.matches(says).count();
    require!(said >= times, "{said} times {says:?}, not {times}\n{}", outcome.describe());
    Ok(())
}

/// The client connects a second time, to a server that listens again. perftest fails if the second
/// request arrives before the server listens (reason 8). An emulated server is slower than a client
/// on the host, unless the network delays the request.
fn figures(lines: Lines, ends: Ends, family: Family) -> Verdict {
    let _slow = if ends.server == Side::Rxe { Some(SlowMads::begin()?) } else { None };
    let outcome = lines.pair(ends, family, LIMIT).run_ok()?;
    let rows = results(&outcome.client.text);
    require!(rows.len() == 1 && rows[0][1] >= 1.0, "no line of figures\n{}", outcome.describe());
    Ok(())
}
