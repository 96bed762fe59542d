//! Debian's perftest between Adverb and rxe.

use std::time::Duration;

use adverb_foreign::process::columns;
use adverb_foreign::suite::{Case, by_length};
use adverb_foreign::{Verdict, require};
use adverb_interop::ends::Family;
use adverb_interop::pair::{Ends, FROM_RXE, TO_RXE};

use crate::counted;

const LIMIT: Duration = Duration::from_secs(120);
/// Over UC and UD only few messages are outstanding, so that none is lost. perftest would wait
/// forever for a lost message.
const FULL: &[(&str, &str)] = &[
    ("ib_send_bw", "-n 300"),
    ("ib_send_bw", "-n 100 -e"),
    ("ib_send_bw", "-n 100 -b"),
    ("ib_send_bw", "-n 100 -q 4"),
    ("ib_send_bw", "-n 100 -m 256"),
    ("ib_send_bw", "-n 300 --use-srq -s 4096"),
    ("ib_send_bw", "-n 100 -c UC -s 1024"),
    ("ib_send_bw", "-n 100 -c UD -s 1024"),
    ("ib_send_lat", "-n 500"),
    ("ib_send_lat", "-n 200 -e"),
    ("ib_send_lat", "-n 5 -a"),
    ("ib_send_lat", "-n 200 -c UC"),
    ("ib_send_lat", "-n 200 -c UD"),
    ("ib_send_lat", "-n 200 -c UD -e"),
    ("ib_write_bw", "-n 300"),
    ("ib_write_bw", "-n 50 -b"),
    ("ib_write_bw", "-n 5 -a"),
    ("ib_write_bw", "-n 100 -m 256"),
    ("ib_write_lat", "-n 500"),
    ("ib_write_lat", "-n 200 -c UC"),
    ("ib_read_bw", "-n 300"),
    ("ib_read_bw", "-n 100 -e"),
    ("ib_read_bw", "-n 5 -a"),
    ("ib_read_bw", "-n 50 -b"),
    ("ib_read_lat", "-n 500"),
    ("ib_read_lat", "-n 200 -e"),
    ("ib_atomic_bw", "-n 300"),
    ("ib_atomic_bw", "-n 300 -A CMP_AND_SWAP"),
    ("ib_atomic_bw", "-n 300 -e"),
    ("ib_atomic_lat", "-n 300"),
    ("ib_atomic_lat", "-n 200 -e"),
];
const SHORT: &[(&str, &str)] = &[
    ("ib_send_bw", "-n 100 -e"),
    ("ib_send_lat", "-n 100"),
    ("ib_send_lat", "-n 100 -c UD"),
    ("ib_write_bw", "-n 100"),
    ("ib_write_lat", "-n 100"),
    ("ib_read_bw", "-n 100"),
    ("ib_read_lat", "-n 100 -e"),
    ("ib_atomic_bw", "-n 100"),
    ("ib_atomic_lat", "-n 100 -e"),
];
/// The rows that also run over IPv6.
const V6: &[&str] = &["-n 300", "-n 500", "-n 200 -c UD"];

pub fn push(cases: &mut Vec<Case>) {
    for &(program, flags) in by_length(FULL, SHORT) {
        for family in [Family::V4, Family::V6] {
            if family == Family::V6 && !V6.contains(&flags) {
                continue;
            }
            for ends in [TO_RXE, FROM_RXE] {
                let name = format!("perftest/{program}/{}", flags.replace(' ', "_"));
                cases.push(counted(name, program.to_string(), ends, family, move || {
                    perftest(program, flags, ends, family)
                }));
            }
        }
    }
}

fn perftest(program: &str, flags: &str, ends: Ends, family: Family) -> Verdict {
    let outcome = ends.run_ok(
        |end| {
            // A timeout of 1 s at the first retry: the emulated machine may be without a processor
            // for longer than the default of 67 ms.
            let args = end.place(family)?.args("-x", &format!("-F -u 18 {flags}"));
            Ok(end.program(program, &args))
        },
        LIMIT,
    )?;
    let rows = columns(&outcome.client.text);
    let wanted = if flags.contains("-a") { 23 } else { 1 };
    let found = rows.len();
    require!(found == wanted, "{found} rows of results, not {wanted}\n{}", outcome.describe());
    require!(rows.iter().all(|r| r[1] >= 1.0), "no iterations\n{}", outcome.describe());
    Ok(())
}
