//! FLT-7 to FLT-9: links that go down and devices that fail, on request, in a network namespace of
//! the test: pyverbs with two equal devices, and rping.

use adverb_foreign::Verdict;
use adverb_foreign::hosts::one_host;
use adverb_foreign::process::which;
use adverb_foreign::suite::{Case, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("FLT-7/events_of_one_of_two_devices", || in_namespace(EVENTS)),
        case("FLT-7/rping_survives_a_short_loss_of_the_link", || in_namespace(RPING)),
        case("FLT-7/a_connection_fails_over_a_link_that_is_down", || in_namespace(CONNECT)),
        case("FLT-9/what_cannot_be_done_is_named", || in_namespace(REFUSED)),
    ]
}

const BEGIN: &str = r#"
cd "$(mktemp -d)"
export ADVERB_DEVICES=rxe0@127.0.0.1,rxe1@127.0.0.2
"#;

const EVENTS: &str = r#"
run /usr/bin/python3 "$DATA/outages.py" "$ADVERB" | tee said
grep -x "ok outages" said
echo "ok"
"#;

/// The link of the server is down for a time, and then for good. The client's requests wait, and
/// then fail.
const RPING: &str = r#"
run rping -s -a 127.0.0.1 -C 100000000 >server 2>&1 & server=$!
# The client ends at once while the server is not ready.
begin() {
    run rping -c -a 127.0.0.1 -C 100000000 -v >client 2>&1 & client=$!
    until grep -q "ping data" client; do kill -0 $client || return 1; sleep 0.1; done
}
try begin
lines() { wc -l <client; }
more() { [ "$(lines)" -gt "$before" ]; }
before=$(lines); try more
"$ADVERB" fault $server link-down=rxe0+100ms
try grep "link of rxe0 is up again" server
before=$(lines); try more
"$ADVERB" fault $server link-down=rxe0
# One of them has an open request. rping takes the end of the other for the end of the test.
wait $client || :
wait $server || :
grep -h "cq completion failed status 12" client server
echo "ok"
"#;

/// No MAD passes a link that is down. Another device is not concerned.
const CONNECT: &str = r#"
run rping -s -C 3 >server 2>&1 & server=$!
begins() { "$ADVERB" stat --json | grep -q rping; }
client() { "$ADVERB" run --fault link-down=rxe0 -- rping -c -a "$1" -I "$1" -C 3 -v >client 2>&1; }
try begins
if client 127.0.0.1; then echo "the client has not failed"; exit 1; fi
grep "RDMA_CM_EVENT_UNREACHABLE" client
client 127.0.0.2 || { cat client; exit 1; }
grep -c "ping data" client | grep -x 3
wait $server
echo "ok"
"#;

const REFUSED: &str = r#"
run /usr/bin/python3 -c '
import pyverbs.device, subprocess, sys, os
device = pyverbs.device.Context(name="rxe0")
for text in sys.argv[2:]:
    print(subprocess.run([sys.argv[1], "fault", str(os.getpid()), text], capture_output=True, text=True).stderr)
' "$ADVERB" link-down=rxe1 drop=1% link-down=rxe0,drop=1% link-down= device-fatal=rxe0+2s >said
for text in "the program has not opened rxe1; open: rxe0" "no link and no device is named" \
    "only link-down and device-fatal are possible in a running program" "the name of the device is missing" "for good"; do
    grep "$text" said
done
if "$ADVERB" fault $$ link-down=rxe0 2>said; then exit 1; fi
grep "has no device open, nor has a child" said
"$ADVERB" run --fault link-down=rxe7@1s -- ibv_devinfo 2>said >/dev/null
grep "there is no device rxe7; the devices are rxe0, rxe1" said
echo "ok"
"#;

fn in_namespace(script: &str) -> Verdict {
    ["rping", "python3"].iter().try_for_each(|tool| which(tool).map(drop))?;
    let data = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
    let out = one_host("outages", &format!("{BEGIN}{script}"), &[], &[("DATA", data)])?;
    out.require(out.text.lines().any(|line| line == "ok"))
}
