//! SYS-5: an open device follows its interface, in a network namespace of the test.

use adverb_foreign::cc::compile;
use adverb_foreign::hosts::{is_root, one_host};
use adverb_foreign::process::{Finished, which};
use adverb_foreign::suite::{Case, case};
use adverb_foreign::{Verdict, require};

/// Only the addresses of the test; an automatic IPv6 address would come later.
const CABLE: &str = r#"
ip link add net0 type veth peer name net1
up net0
up net1
ip addr add 192.0.2.1/24 dev net0
"#;

/// `$1`: the options of `adverb run`.
const STEPS: &str = r#"
try is net0 active
RIG_NET=net0 "$ADVERB" run $1 -- "$PROGRAM"
"#;

pub fn cases() -> Vec<Case> {
    vec![
        case("SYS-5/an_open_device_follows_its_interface", follows),
        case("SYS-13/a_device_stays_while_its_interface_is_down", down),
        case("SYS-5/an_address_under_duplicate_address_detection_is_waited_for", tentative),
        case("UCM-7/a_request_that_cannot_leave_this_machine_ends_at_once", unsendable),
        case("TRU-4/whoever_has_the_udp_port_is_named_at_opening", taken),
    ]
}

/// Runs steps with a directory `/run` of their own.
fn run(
    what: &str,
    steps: &[&str],
    args: &[&str],
    vars: &[(&str, &str)],
) -> Result<Finished, String> {
    one_host(what, &format!("mount -t tmpfs none /run\n{}", steps.concat()), args, vars)
}

/// Before another program takes the port.
const FREE: &str = "run ibv_devinfo -d adverb0 >/run/free 2>&1\n";

/// A program of another user holds the UDP port at every address.
const HOLDER: &str = r#"
setpriv --reuid 4321 --regid 4321 --clear-groups /usr/bin/python3 -c '
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 4791))
print("up", flush=True)
time.sleep(120)' >/run/up & holder=$!
try grep -qs up /run/up
"#;

/// A program that opens a device gets an error message. A program that only lists devices goes on.
const TAKEN: &str = r#"
run ibv_devinfo -d adverb0 >/run/taken 2>&1 || { kill $holder; cat /run/taken; exit 1; }
kill $holder
grep -c warn /run/free || true
cat /run/taken
"#;

/// Duplicate address detection takes three seconds, so it is still running when the program looks.
/// The other end of the cable has `fd00:77::9`. So detection finds that `net0` must not use this
/// address.
const TENTATIVE: &str = r#"
ip link add net0 type veth peer name net1
sysctl -qw net.ipv6.conf.net0.accept_dad=1 net.ipv6.conf.net0.dad_transmits=3
up net0
up net1
ip addr add fd00:77::9/64 dev net1 nodad
ip addr add fd00:77::9/64 dev net0
ip addr add 192.0.2.1/24 dev net0
failed() { ip -6 addr show dev net0 | grep fd00:77::9 | grep -q dadfailed; }
try failed
export RIG_DEV=adverb_net0 ADVERB_DEVICES=net0
for address in fe80::77 fd00:77::1; do
    ip addr add $address/64 dev net0
    ip -6 addr show dev net0 | grep $address | grep -q tentative || { echo "detection is over too soon"; exit 1; }
    run "$PROGRAM" wait $address
done
run "$PROGRAM" gone fd00:77::9
"#;

fn tentative() -> Verdict {
    let program = compile("tentative")?.display().to_string();
    let out = run("addresses that are new", &[TENTATIVE], &[], &[("PROGRAM", &program)])?;
    out.require(out.text.matches("ok tentative").count() == 3)?;
    // A correct program gets no message.
    require!(!out.text.contains("adverb: "), "an untrue line: {}", out.describe());
    Ok(())
}

/// A device stays listed while its interface is down, or has no carrier: SYS-13. `$1`: the options
/// of `adverb run`, `$2`: the device.
const DOWN: &str = r#"
tell() {
    try is net0 $2
    echo "== $1"
    "$ADVERB" run $options -- sh -c "ibv_devices; ibv_devinfo -d $device; cat /sys/class/infiniband/$device/ports/1/state; rdma link; ibstat $device"
    "$ADVERB" devices $options
}
options=$1; device=$2
tell up active
ip link set net0 down
tell down down
ip link set net0 up
ip link set net1 down
tell "no carrier" down
"#;

fn down() -> Verdict {
    for (options, device) in
        [("", "adverb0"), ("--device all", "adverb_net0"), ("--device net0", "adverb_net0")]
    {
        let what = format!("an interface that is down, {device}");
        let out = run(&what, &[CABLE, DOWN], &[options, device], &[])?;
        let parts: Vec<&str> = out.text.split("== ").collect();
        out.require(parts.len() == 4)?;
        let active = ["PORT_ACTIVE", "4: ACTIVE", "state ACTIVE", "State: Active"];
        let down = ["PORT_DOWN", "1: DOWN", "state DOWN", "State: Down", "  down  "];
        for (part, words) in [(1, &active[..]), (2, &down[..]), (3, &down[..])] {
            for word in words.iter().chain([&device]) {
                require!(parts[part].contains(word), "no {word}: {}", out.describe());
            }
        }
    }
    Ok(())
}

/// The same port in use; a client requests a connection.
const UNSENDABLE: &str = r#"
timeout 50 "$ADVERB" run -- rping -c -a 127.0.0.1 -C 1 && status=0 || status=$?
echo "rping ended with $status"
kill $holder
"#;

/// Repeating the request would take 77 s.
fn unsendable() -> Verdict {
    require!(is_root(), "this test becomes another user, which only root can: run it as root");
    which("rping")?;
    let out = run("a request that cannot leave", &[HOLDER, UNSENDABLE], &[], &[])?;
    out.require_words(&["RDMA_CM_EVENT_UNREACHABLE, error -98"])?;
    require!(!out.text.contains("rping ended with 124"), "it waits: {}", out.describe());
    let said =
        out.text.lines().filter(|line| line.starts_with("adverb: error")).collect::<Vec<_>>();
    require!(said.len() == 1 && said[0].contains("user 4321"), "{said:?}: {}", out.describe());
    Ok(())
}

fn taken() -> Verdict {
    require!(is_root(), "this test becomes another user, which only root can: run it as root");
    let out = run("a UDP port that is taken", &[FREE, HOLDER, TAKEN], &[], &[])?;
    out.require_words(&[
        "nothing can be connected at adverb0",
        "UDP port 4791 at 127.0.0.1",
        "user 4321",
        "PORT_ACTIVE",
    ])?;
    require!(out.text.starts_with("0\n"), "a warning without a reason: {}", out.describe());
    Ok(())
}

fn follows() -> Verdict {
    let program = compile("ports")?.display().to_string();
    for (device, options, stays) in [("adverb0", "", "1"), ("adverb_net0", "--device net0", "")] {
        let variables = [("PROGRAM", &*program), ("RIG_DEV", device), ("RIG_STAYS", stays)];
        let what = format!("an interface of {device} that changes");
        let out = run(&what, &[CABLE, STEPS], &[options], &variables)?;
        out.require_words(&["ok ports"])?;
    }
    Ok(())
}
