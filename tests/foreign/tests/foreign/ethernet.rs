//! Raw packet queue pairs on interfaces (RAW-1, RAW-2): two network namespaces with a cable between
//! them, perftest's `raw_ethernet_*` and `c/raw.c` over the cable, and a process without the right
//! to packet sockets.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cc::compile;
use adverb_foreign::hosts::two_hosts;
use adverb_foreign::process::{Finished, which};
use adverb_foreign::suite::{Case, case};

const LIMIT: Duration = Duration::from_secs(90);

/// The MAC addresses at both ends of the cable, and helpers.
const BEGIN: &str = r#"
here=$(ip -br link show dev here | awk '{ print $3 }')
there=$(ip -n other -br link show dev there | awk '{ print $3 }')
ready() { wait_for "the server is not ready" 20 "$@"; }
gone() { ! kill -0 $server 2>/dev/null; }
ended() { wait_for "the server goes on" 30 gone; wait $server || fail "the server"; }
"#;

/// The received frames equal the sent ones, including VLAN tags.
const FRAMES: &str = r#"
RIG_DEV=adverb0 "$ADVERB" run -- "$PROGRAM" in $here >/run/server 2>&1 & server=$!
started=$server
ready grep -q ready /run/server
RIG_DEV=adverb0 ip netns exec other "$ADVERB" run -- "$PROGRAM" out $here || fail "the client"
ended
cat /run/server
"#;

/// perftest has no connection here. The server has its flow when it prints the table heading, and
/// posts its receives right after.
const PERFTEST: &str = r#"
"$ADVERB" run -- stdbuf -oL $1 -F -d adverb0 --server -B $here -E $there $2 >/run/server 2>&1 & server=$!
started=$server
ready grep -q '#bytes' /run/server
sleep 1
ip netns exec other "$ADVERB" run -- $1 -F -d adverb0 --client -B $there -E $here $2 || fail "the client"
ended
cat /run/server
"#;

const NO_RIGHT: &str = r#"
RIG_DEV=adverb0 setpriv --bounding-set -net_raw --inh-caps -net_raw --ambient-caps -all "$ADVERB" run -- "$PROGRAM" no_right
"#;

pub fn cases() -> Vec<Case> {
    let perftest = [
        ("raw_ethernet_bw", "-n 1000 -s 1000"),
        // Not with -e: the server would sleep for events of a queue that it never arms.
        ("raw_ethernet_bw", "-n 1000 -s 64"),
        ("raw_ethernet_lat", "-n 1000 -s 200"),
    ];
    let mut cases = vec![
        case("RAW-1/frames_over_a_cable", || {
            beside(FRAMES, &[])?.require_words(&["ok in", "ok out"])
        }),
        case("RAW-2/without_the_right", without_the_right),
    ];
    for (program, options) in perftest {
        let name = format!("RAW-1/{program}_{}", options.replace([' ', '-'], ""));
        cases.push(case(name, move || raw_ethernet(program, options)));
    }
    cases
}

/// Runs the steps with the cable. `PROGRAM` is the compiled `c/raw.c`.
fn beside(steps: &str, args: &[&str]) -> Result<Finished, String> {
    let program = compile("raw")?;
    let steps = format!("PROGRAM={}{BEGIN}{steps}", program.display());
    two_hosts(&format!("and a cable: {args:?}"), &steps, args, LIMIT)
}

fn without_the_right() -> Verdict {
    let words = ["ok no_right", "adverb0", "CAP_NET_RAW", "setpriv"];
    beside(NO_RIGHT, &[])?.require_words(&words)
}

fn raw_ethernet(program: &str, options: &str) -> Verdict {
    which(program)?;
    beside(PERFTEST, &[program, options])?.require_words(&["#bytes"])
}
