//! `rdma res`, `rdma statistic` and the files of counters, beside programs at work (SYS-10). The
//! programs have a network namespace of their own, because a stopped process of another test would
//! be a process without an answer.

use adverb_foreign::Verdict;
use adverb_foreign::hosts::one_host;
use adverb_foreign::process::which;
use adverb_foreign::suite::{Case, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("SYS-10/objects_and_counters_of_programs", || objects(OBJECTS)),
        case("SYS-10/a_number_that_is_not_known_is_refused", || objects(REFUSED)),
    ]
}

/// Two programs that send to each other over the network, until they are killed.
const BEGIN: &str = r#"
cd "$(mktemp -d)"
export ADVERB_PATH=wire
"$ADVERB" run -- ib_send_bw -x 0 --run_infinitely >/dev/null 2>&1 & server=$!
listens() { ss -Hltn | grep -q :18515; }
try listens
"$ADVERB" run -- ib_send_bw -x 0 --run_infinitely 127.0.0.1 >/dev/null 2>&1 & client=$!
trap 'kill -9 $server $client' EXIT
works() { run rdma res show qp >qps && [ "$(grep -c 'state RT[RS].*comm ib_send_bw' qps)" = 2 ]; }
try works
"#;

const OBJECTS: &str = r#"
grep -q "pid $server " qps
grep -q "type RC state RTS .*pid $client " qps
number=$(sed -n "s/.* lqpn \([0-9]*\) .*pid $client .*/\1/p" qps)
run rdma res show qp lqpn $number | grep -q "pid $client "
run rdma res >summary
cat summary
grep -q "pd 2 cq [24] qp 2 mr 2 ctx 2 srq 0" summary
run rdma -j res | grep -q '"mr":2'
for kind in pd cq mr ctx; do
    run rdma res show $kind >list
    grep -q "pid $server " list && grep -q "pid $client " list
done
run rdma res show srq >list && [ ! -s list ]
run rdma res show cm_id 2>&1 | grep -q "not supported"
moves() { run rdma statistic | grep -q "rcvd_pkts [1-9].* duplicate_request [0-9]"; }
try moves
file=$(run sh -c 'echo /sys/class/infiniband/*/ports/1/hw_counters/rcvd_pkts')
before=$(run cat "$file")
[ "$before" -gt 0 ]
more() { [ "$(run python3 -c "print(open('$file').read())")" -gt "$before" ]; }
try more
kill -9 $client $server
none() { run rdma res | grep -q "pd 0 cq 0 qp 0 mr 0 ctx 0 srq 0"; }
try none
trap - EXIT
echo "ok objects"
"#;

const REFUSED: &str = r#"
file=$(run sh -c 'echo /sys/class/infiniband/*/ports/1/hw_counters/rcvd_pkts')
# Nobody collects the answers.
! run env -u ADVERB_SURVIVOR rdma res 2>said
grep -q "No data" said
! run env -u ADVERB_SURVIVOR rdma statistic
! run env -u ADVERB_SURVIVOR cat "$file"
# A process gives no answer.
kill -STOP $server
! run rdma res
! run cat "$file"
kill -CONT $server
# The client may have given up meanwhile.
answers() { run rdma res; }
try answers
trap 'kill -9 $server $client 2>/dev/null || true' EXIT
echo "ok objects"
"#;

fn objects(script: &str) -> Verdict {
    ["rdma", "ib_send_bw", "ss", "python3"].iter().try_for_each(|tool| which(tool).map(drop))?;
    let out = one_host("objects of programs at work", &format!("{BEGIN}{script}"), &[], &[])?;
    out.require_words(&["ok objects"])
}
