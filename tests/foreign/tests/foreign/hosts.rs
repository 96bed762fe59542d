//! Two hosts: the events of a program on one host after the death of a program on the other, and
//! the source ports of packets between hosts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use adverb_foreign::hosts::two_hosts;
use adverb_foreign::process::which;
use adverb_foreign::scratch::Scratch;
use adverb_foreign::suite::{Case, case};
use adverb_foreign::tshark::capture;
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(150);

/// Two programs exchange messages without end. The first (`$1`) is killed. The other (`$2`) has to
/// end by itself, and the output is printed. Without a message about the death the other would wait
/// forever, because the dead program's host sends nothing more.
const STEPS: &str = r#"
"$ADVERB" run -- rping -s -a 192.0.2.1 -C 100000000 >/run/server 2>&1 & server=$!
started=$server
# It listens when its name is there.
wait_for "nobody listens" 30 grep -q '@adverb-[0-9]*-cm-' /proc/net/unix
$there "$ADVERB" run -- rping -c -a 192.0.2.1 -C 100000000 >/run/client 2>&1 & client=$!
started="$server $client"
# Traffic over the cable shows that they talk.
talk() { [ "$(awk '/here:/ { print $3 }' /proc/net/dev)" -ge 200 ]; }
wait_for "they do not talk" 30 talk
eval "killed=\$$1; told=\$$2"
kill -9 $killed || fail "$1 has ended by itself"
ended() { ! kill -0 $told 2>/dev/null; }
wait_for "$2 was not told" 30 ended
cat /run/$2
"#;

pub fn cases() -> Vec<Case> {
    vec![
        case("UCM-12/a_killed_server_is_told_of", || killed("server", "client")),
        case("UCM-12/a_killed_client_is_told_of", || killed("client", "server")),
        case("SYS-9/queue_pairs_leave_from_several_source_ports", ports),
    ]
}

fn killed(which_one: &str, told: &str) -> Verdict {
    which("rping")?;
    two_hosts(&format!("the {which_one} killed"), STEPS, &[which_one, told], LIMIT)?
        .require_words(&["DISCONNECT EVENT"])
}

/// Eight queue pairs exchange messages between the hosts. Both programs write captures (`$1`).
const CAPTURED: &str = r#"
test="ib_send_bw --qp 8 --iters 20 --size 64 --tx-depth 8"
"$ADVERB" run --capture "$1/server.pcapng" -- $test -d adverb0 >/run/server 2>&1 & server=$!
started=$server
# TCP port 18515, in state LISTEN.
listens() { grep -qs ':4853 .* 0A ' /proc/net/tcp /proc/net/tcp6; }
wait_for "the server does not listen" 30 listens
$there "$ADVERB" run --capture "$1/client.pcapng" -- $test -d adverb0 192.0.2.1 >/run/client 2>&1 \
    || fail "the client has failed"
wait $server || fail "the server has failed"
"#;

/// Captures name the source port on the wire, and `tshark` finds checksums and ICRC right.
fn ports() -> Verdict {
    which("ib_send_bw")?;
    let scratch = Scratch::new("ports")?;
    two_hosts("source ports", CAPTURED, &[&scratch.path("")], LIMIT)?;
    for name in ["server.pcapng", "client.pcapng"] {
        let reading = capture(&scratch.file(name))?;
        let mut ports: BTreeMap<(bool, u32), BTreeSet<u16>> = BTreeMap::new();
        for packet in &reading.packets {
            let qp = (packet.sent, packet.headers.bth.dest_qpn);
            ports.entry(qp).or_default().insert(packet.src_port);
        }
        require!(ports.len() == 16, "eight queue pairs in each direction: {ports:?}");
        require!(ports.values().all(|of| of.len() == 1), "one port for each queue pair: {ports:?}");
        for sent in [true, false] {
            let all: BTreeSet<u16> = ports
                .iter()
                .filter(|((of, _), _)| *of == sent)
                .flat_map(|(_, ports)| ports)
                .copied()
                .collect();
            // All eight queue pairs of one port are one of two million cases.
            require!(all.len() > 1 && all.iter().all(|port| *port >= 0xc000), "{all:?}");
        }
    }
    Ok(())
}
