//! UCM-13, SYS-16: destinations without a route, or on a link without an answer to ARP or neighbour
//! discovery, in a network namespace with a cable.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::cc::compile;
use adverb_foreign::hosts::start_on_one_host;
use adverb_foreign::process::{Running, which};
use adverb_foreign::suite::{Case, case};

/// Shorter than the protocol's wait for an answer to a REQ.
const LIMIT: Duration = Duration::from_secs(60);

const STEPS: &str = r#"
ip link add here type veth peer name there
ip addr add 192.0.2.1/24 dev here
ip addr add fd00:77::1/64 dev here nodad
up here
up there
ip route add 198.51.100.0/24 via 192.0.2.98
ip link add silent type veth peer name still
ip addr add 203.0.113.1/24 dev silent
ip link set silent arp off
up silent
up still
try is here active
ip neigh add 192.0.2.50 lladdr 02:00:00:00:00:50 dev here nud permanent
exec "$ADVERB" run -- "$@"
"#;

/// A case of `c/noway.c`, its arguments (own address, the peer's, the errno of both calls, and
/// perhaps a command in between), and words of the log.
const WAYS: [(&str, &[&str], &[&str]); 9] = [
    (
        "nobody_has_the_ipv4_address",
        &["192.0.2.1", "192.0.2.98", "110"],
        &["no host on the link answers for 192.0.2.98 "],
    ),
    (
        "nobody_has_the_ipv6_address",
        &["fd00:77::1", "fd00:77::98", "110"],
        &["answers for fd00:77::98 "],
    ),
    (
        "nobody_has_the_address_of_the_gateway",
        &["192.0.2.1", "198.51.100.8", "110"],
        &["192.0.2.98, the gateway to 198.51.100.8"],
    ),
    (
        "no_ipv4_route",
        &["192.0.2.1", "172.31.9.9", "110"],
        &["no route to 172.31.9.9 (the kernel answers ENETUNREACH)"],
    ),
    (
        "no_ipv6_route",
        &["fd00:77::1", "fd99::9", "101"],
        &["no route to fd99::9 (the kernel answers ENETUNREACH)"],
    ),
    ("a_known_neighbour_is_not_asked", &["192.0.2.1", "192.0.2.50", "0"], &[]),
    ("a_link_without_arp_has_nobody_to_ask", &["203.0.113.1", "203.0.113.9", "0"], &[]),
    (
        "a_peer_at_a_loopback_address_is_on_this_host",
        &["127.0.0.1", "127.0.0.1", "0"],
        &[
            "127.0.0.1 is this host, and no process of this user here has the queue pair 0x345678: \
             for a peer on another host, choose the GID of a network address",
            "127.0.0.1 is this host, and no process of this user here has the queue pair to which \
             datagrams go: for a peer on another host, choose the GID of a network address",
        ],
    ),
    (
        "a_lost_route_is_named",
        &["192.0.2.1", "192.0.2.50", "0", "ip route del 192.0.2.0/24 dev here"],
        &["after 3 transmissions, and none before; this machine has no route to 192.0.2.50 \
           (the kernel answers ENETUNREACH)"],
    ),
];

pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        case("UCM-13/nobody_has_the_ipv4_address", || nobody("192.0.2.99")),
        case("UCM-13/nobody_has_the_ipv6_address", || nobody("fd00:77::99")),
        case("UCM-13/nobody_has_the_address_of_the_gateway", || nobody("198.51.100.7")),
        case("UCM-13/a_link_without_arp_has_nobody_to_ask", || resolved("203.0.113.9")),
        case("UCM-13/own_addresses_are_known", || resolved("192.0.2.1")),
    ];
    cases.extend(WAYS.map(|(name, args, words)| {
        case(format!("SYS-16/{name}"), move || {
            let program = compile("noway")?.display().to_string();
            let out = inside(&[&[program.as_str()][..], args].concat())?.wait(LIMIT).passed()?;
            out.require_words(&["ok noway"])?;
            out.require_words(words)
        })
    }));
    cases
}

fn client(to: &str) -> Result<Running, String> {
    which("rping")?;
    inside(&["stdbuf", "-oL", "rping", "-c", "-d", "-a", to, "-C", "1"])
}

/// Starts a program in the namespace.
fn inside(line: &[&str]) -> Result<Running, String> {
    start_on_one_host(&line.join(" "), STEPS, line, &[("ADVERB_LOG", "info")])
}

fn nobody(to: &str) -> Verdict {
    let out = client(to)?.wait(LIMIT);
    out.require(!out.timed_out && !out.ok())?;
    out.require_words(&["RDMA_CM_EVENT_ADDR_ERROR, error -110", "no host on the link"])
}

/// The address of this destination is resolved; the connection itself may fail.
fn resolved(to: &str) -> Verdict {
    client(to)?.wait_for_text("RDMA_CM_EVENT_ADDR_RESOLVED", LIMIT)
}
