//! UCM-13, SYS-16: destinations without a route, or on a link without an answer to ARP or neighbour
//! discovery, in a network namespace with a cable.

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use adverb_foreign::cc::compile;
use adverb_foreign::process::{Finished, Running, adverb, start, which};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

/// Shorter than the protocol's wait for an answer to a REQ.
const LIMIT: Duration = Duration::from_secs(60);

const STEPS: &str = r#"
ip link set lo up
ip link add here type veth peer name there
ip addr add 192.0.2.1/24 dev here
ip addr add fd00:77::1/64 dev here nodad
for at in here there; do ip link set $at addrgenmode none; ip link set $at up; done
ip route add 198.51.100.0/24 via 192.0.2.98
ip link add silent type veth peer name still
ip addr add 203.0.113.1/24 dev silent
ip link set silent arp off
for at in silent still; do ip link set $at addrgenmode none; ip link set $at up; done
n=0
until "$ADVERB" devices | grep -q 'here  *active'; do
    n=$((n + 1)); [ $n -lt 300 ] || { echo "the cable is not up"; exit 1; }
    sleep 0.1
done
ip neigh add 192.0.2.50 lladdr 02:00:00:00:00:50 dev here nud permanent
exec "$ADVERB" run -- "$@"
"#;

pub fn cases() -> Vec<Case> {
    vec![
        case("UCM-13/nobody_has_the_ipv4_address", || nobody("192.0.2.99")),
        case("UCM-13/nobody_has_the_ipv6_address", || nobody("fd00:77::99")),
        case("UCM-13/nobody_has_the_address_of_the_gateway", || nobody("198.51.100.7")),
        case("UCM-13/a_link_without_arp_has_nobody_to_ask", || resolved("203.0.113.9")),
        case("UCM-13/own_addresses_are_known", || resolved("192.0.2.1")),
        case("SYS-16/nobody_has_the_ipv4_address", || {
            refused(
                &["192.0.2.1", "192.0.2.98", "110"],
                "no host on the link answers for 192.0.2.98 ",
            )
        }),
        case("SYS-16/nobody_has_the_ipv6_address", || {
            refused(&["fd00:77::1", "fd00:77::98", "110"], "answers for fd00:77::98 ")
        }),
        case("SYS-16/nobody_has_the_address_of_the_gateway", || {
            refused(
                &["192.0.2.1", "198.51.100.8", "110"],
                "192.0.2.98, the gateway to 198.51.100.8",
            )
        }),
        case("SYS-16/no_ipv4_route", || {
            refused(
                &["192.0.2.1", "172.31.9.9", "110"],
                "no route to 172.31.9.9 (the kernel answers ENETUNREACH)",
            )
        }),
        case("SYS-16/no_ipv6_route", || {
            refused(
                &["fd00:77::1", "fd99::9", "101"],
                "no route to fd99::9 (the kernel answers ENETUNREACH)",
            )
        }),
        case("SYS-16/a_known_neighbour_is_not_asked", || {
            way(&["192.0.2.1", "192.0.2.50", "0"]).map(drop)
        }),
        case("SYS-16/a_link_without_arp_has_nobody_to_ask", || {
            way(&["203.0.113.1", "203.0.113.9", "0"]).map(drop)
        }),
        case("SYS-16/a_peer_at_a_loopback_address_is_on_this_host", || {
            let out = way(&["127.0.0.1", "127.0.0.1", "0"])?;
            let who = ["queue pair 0x345678", "queue pair to which datagrams go"];
            for line in who.map(|who| {
                format!(
                    "127.0.0.1 is this host, and no process of this user here has the {who}: for a \
                     peer on another host, choose the GID of a network address"
                )
            }) {
                require!(out.text.contains(&line), "no word of {line}: {}", out.describe());
            }
            Ok(())
        }),
        case("SYS-16/a_lost_route_is_named", || {
            let lost = "ip route del 192.0.2.0/24 dev here";
            let out = way(&["192.0.2.1", "192.0.2.50", "0", lost])?;
            let line = "after 3 transmissions, and none before; this machine has no route to 192.0.2.50 \
                        (the kernel answers ENETUNREACH)";
            require!(out.text.contains(line), "{}", out.describe());
            Ok(())
        }),
    ]
}

/// Runs `c/noway.c`.
fn way(args: &[&str]) -> Result<Finished, String> {
    let program = compile("noway")?.display().to_string();
    let line: Vec<&str> = [&[program.as_str()][..], args].concat();
    let out = inside(&line)?.wait(LIMIT);
    out.require_ok()?;
    require!(out.text.contains("ok noway"), "{}", out.describe());
    Ok(out)
}

/// Both calls fail with the errno of Linux, and the log says why.
fn refused(args: &[&str], why: &str) -> Verdict {
    let out = way(args)?;
    require!(out.text.contains(why), "the log does not say why: {}", out.describe());
    Ok(())
}

fn client(to: &str) -> Result<Running, String> {
    which("rping")?;
    inside(&["stdbuf", "-oL", "rping", "-c", "-d", "-a", to, "-C", "1"])
}

/// Starts a program in the namespace.
fn inside(line: &[&str]) -> Result<Running, String> {
    let mut command = Command::new("unshare");
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "sh", "-e", "-c", STEPS, "sh"]).args(line);
    command.env("ADVERB", adverb()?).env("ADVERB_LOG", "info");
    start(command, line.join(" "))
}

fn nobody(to: &str) -> Verdict {
    let out = client(to)?.wait(LIMIT);
    require!(!out.timed_out && !out.ok(), "{}", out.describe());
    require!(out.text.contains("RDMA_CM_EVENT_ADDR_ERROR, error -110"), "{}", out.describe());
    require!(
        out.text.contains("no host on the link"),
        "the log does not say why: {}",
        out.describe()
    );
    Ok(())
}

/// The address of this destination is resolved; the connection itself may fail.
fn resolved(to: &str) -> Verdict {
    client(to)?.wait_for_text("RDMA_CM_EVENT_ADDR_RESOLVED", LIMIT)
}
