//! Raw packet queue pairs on interfaces (RAW-1, RAW-2): two network namespaces with a cable between
//! them, perftest's `raw_ethernet_*` and `c/raw.c` over the cable, and a process without the right
//! to packet sockets.

use std::time::Duration;

use adverb_foreign::cc::compile;
use adverb_foreign::hosts::{ETHERNET, cabled};
use adverb_foreign::process::{Finished, adverb, start, which};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(90);

/// The devices at both ends of the cable, and helpers; then the steps of the case.
const DEVICES: &str = r#"
n=0
until "$ADVERB" devices | grep -q 'here  *active' && ip netns exec other "$ADVERB" devices | grep -q 'there  *active'; do
    n=$((n + 1)); [ $n -lt 300 ] || { echo "the cable is not up"; exit 1; }
    sleep 0.1
done
here=$(ip -br link show dev here | awk '{ print $3 }')
there=$(ip -n other -br link show dev there | awk '{ print $3 }')
fail() { echo "$1"; tail -c 3000 /run/server; kill -9 $server 2>/dev/null; exit 1; }
# Until the server has said that it is ready.
ready() {
    n=0
    until "$@"; do
        n=$((n + 1)); [ $n -lt 200 ] || fail "the server is not ready"
        sleep 0.1
    done
}
ended() { n=0; while kill -0 $server 2>/dev/null; do n=$((n + 1)); [ $n -lt 300 ] || fail "the server goes on"; sleep 0.1; done; wait $server; }
"#;

/// The received frames equal the sent ones, including VLAN tags.
const FRAMES: &str = r#"
RIG_DEV=adverb0 "$ADVERB" run -- "$PROGRAM" in $here >/run/server 2>&1 & server=$!
ready grep -q ready /run/server
RIG_DEV=adverb0 ip netns exec other "$ADVERB" run -- "$PROGRAM" out $here || fail "the client"
ended || fail "the server"
cat /run/server
"#;

/// perftest has no connection here. The server has its flow when it prints the table heading, and
/// posts its receives right after.
const PERFTEST: &str = r#"
"$ADVERB" run -- stdbuf -oL $1 -F -d adverb0 --server -B $here -E $there $2 >/run/server 2>&1 & server=$!
ready grep -q '#bytes' /run/server
sleep 1
ip netns exec other "$ADVERB" run -- $1 -F -d adverb0 --client -B $there -E $here $2 || fail "the client"
ended || fail "the server"
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
        case("RAW-1/frames_over_a_cable", frames),
        case("RAW-2/without_the_right", without_the_right),
    ];
    for (program, options) in perftest {
        let name = format!("RAW-1/{program}_{}", options.replace([' ', '-'], ""));
        cases.push(case(name, move || raw_ethernet(program, options)));
    }
    cases
}

/// Runs the steps with the cable.
fn beside(steps: &str, program: Option<&str>, args: &[&str]) -> Result<Finished, String> {
    let mut command = cabled(ETHERNET, &format!("{DEVICES}{steps}"));
    command.args(args).env("ADVERB", adverb()?).env_remove("ADVERB_PATH").env_remove("ADVERB_LOG");
    if let Some(program) = program {
        command.env("PROGRAM", program);
    }
    Ok(start(command, format!("two hosts and a cable: {args:?}"))?.wait(LIMIT))
}

fn frames() -> Verdict {
    let program = compile("raw")?.display().to_string();
    let out = beside(FRAMES, Some(&program), &[])?;
    out.require_ok()?;
    require!(out.text.contains("ok in") && out.text.contains("ok out"), "{}", out.describe());
    Ok(())
}

fn without_the_right() -> Verdict {
    let program = compile("raw")?.display().to_string();
    let out = beside(NO_RIGHT, Some(&program), &[])?;
    out.require_ok()?;
    require!(out.text.contains("ok no_right"), "{}", out.describe());
    for word in ["adverb0", "CAP_NET_RAW", "setpriv"] {
        require!(out.text.contains(word), "the log does not say {word}: {}", out.describe());
    }
    Ok(())
}

fn raw_ethernet(program: &str, options: &str) -> Verdict {
    which(program)?;
    let out = beside(PERFTEST, None, &[program, options])?;
    out.require_ok()?;
    require!(out.text.contains("#bytes"), "{}", out.describe());
    Ok(())
}
