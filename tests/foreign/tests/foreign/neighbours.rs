//! UCM-13: destinations on a link without an answer to ARP or neighbour discovery, in a network
//! namespace with a cable.

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use adverb_foreign::process::{Running, adverb, start, which};
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
exec "$ADVERB" run -- stdbuf -oL rping -c -d -a $1 -C 1
"#;

pub fn cases() -> Vec<Case> {
    vec![
        case("UCM-13/nobody_has_the_ipv4_address", || nobody("192.0.2.99")),
        case("UCM-13/nobody_has_the_ipv6_address", || nobody("fd00:77::99")),
        case("UCM-13/nobody_has_the_address_of_the_gateway", || nobody("198.51.100.7")),
        case("UCM-13/a_link_without_arp_has_nobody_to_ask", || resolved("203.0.113.9")),
        case("UCM-13/own_addresses_are_known", || resolved("192.0.2.1")),
    ]
}

fn client(to: &str) -> Result<Running, String> {
    which("rping")?;
    let mut command = Command::new("unshare");
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "sh", "-e", "-c", STEPS, "sh", to]).env("ADVERB", adverb()?);
    start(command, format!("rping to {to}"))
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
