//! Tests of `adverb doctor` as a user calls it.
mod common;
use common::{apart, said, text};

/// DOC-1, DOC-2: without an interface that is up there is no device, and the exit status says so.
#[test]
fn doctor_finds_that_there_is_no_interface() {
    let out = said(&apart("$ADVERB doctor"), 1);
    assert!(out.contains("FAIL  interface") && out.contains("ip link set lo up"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
}

/// DOC-1, DOC-2, DOC-3: with the loopback interface, the checks pass. The lines and the JSON say
/// the same.
#[test]
fn doctor_says_the_same_in_json() {
    let output = apart("ip link set lo up; $ADVERB doctor; $ADVERB doctor --json");
    said(&output, 0);
    let out = text(&output.stdout);
    let (lines, json) = out.trim_end().rsplit_once('\n').expect("lines, then JSON");
    let all: serde_json::Value = serde_json::from_str(json).unwrap();
    let all = all.as_array().unwrap();
    for finding in all {
        let (state, what) = (finding["state"].as_str().unwrap(), finding["what"].as_str().unwrap());
        let head = |line: &str| line.to_lowercase().starts_with(&format!("{state:4}  {what:11} "));
        assert!(lines.lines().any(head), "no {finding} in {lines}");
        assert_eq!(finding["remedy"].is_string(), state != "ok", "{finding}");
    }
    for what in [
        "kernel",
        "libraries",
        "interface",
        "packets",
        "port",
        "processes",
        "descriptors",
        "memory",
    ] {
        assert!(all.iter().any(|finding| finding["what"] == what), "no {what} in {lines}");
    }
    let port = all.iter().find(|finding| finding["what"] == "port").unwrap();
    assert_eq!((&port["state"], &port["found"]), (&"ok".into(), &"UDP port 4791 is free".into()));
}

/// DOC-2: a small MTU is found. A test cannot set up a firewall.
#[test]
fn doctor_finds_a_small_mtu() {
    let output = apart("ip link set lo up; ip link set lo mtu 900; $ADVERB doctor");
    let out = text(&output.stdout);
    assert!(out.contains("warn  interface") && out.contains("ip link set lo mtu 1500"), "{out}");
}

/// DOC-3: another program has the port. Here a Python script is the other program.
#[test]
fn doctor_names_who_has_the_port() {
    let script = "ip link set lo up; python3 -c 'import \
                  socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); \
                  s.bind((\"\",4791)); print(1,flush=True); time.sleep(60)' > \"$OUT\" & until [ \
                  -s \"$OUT\" ]; do sleep 0.05; done; $ADVERB doctor; status=$?; kill $!; rm \
                  \"$OUT\"; exit $status";
    let out = std::env::temp_dir().join(format!("adverb-doctor-port-{}", std::process::id()));
    let out = said(&apart(&format!("OUT={}; {script}", out.display())), 1);
    assert!(out.contains("FAIL  port") && out.contains("python3"), "{out}");
}

/// DOC-5: a limit on descriptors.
#[test]
fn doctor_finds_a_small_limit() {
    // A warning is no failure.
    let out = said(&apart("ip link set lo up; ulimit -n 64; $ADVERB doctor"), 0);
    assert!(out.contains("warn  descriptors") && out.contains("ulimit -n 4096"), "{out}");
}

/// Two hosts, `there` and `here`, and a bridge between them. The interfaces accept longer packets
/// than the bridge forwards.
const BRIDGED: &str = r#"set -e
apart() { unshare -n sleep 300 & last=$!; until [ "$(readlink /proc/$last/ns/net)" != "$here" ]; do sleep 0.05; done; }
here=$(readlink /proc/self/ns/net)
apart; far=$last; trap 'kill $far' EXIT; apart; middle=$last; trap 'kill $far $middle' EXIT
there() { nsenter -t $far -n "$@"; }; between() { nsenter -t $middle -n "$@"; }
ip link set lo up; there ip link set lo up
ip link add here mtu $MTU type veth peer name one mtu $MTU netns $middle
between ip link add two type veth peer name there mtu $MTU netns $far
between ip link add bridge type bridge
for port in one two; do between ip link set $port master bridge; between ip link set $port up; done
between ip link set bridge up
ip addr add 192.0.2.1/24 dev here; ip link set here up
there ip addr add 192.0.2.2/24 dev there; there ip link set there up
until "$ADVERB" devices | grep -q "here  *active" && there "$ADVERB" devices | grep -q "there  *active"; do sleep 0.05; done
there env $VARIABLE "$ADVERB" doctor --listen 192.0.2.2 & waits=$!
until there grep -q 020200C0:12B7 /proc/net/tcp; do sleep 0.05; done
status=0; "$ADVERB" doctor --with 192.0.2.2 || status=$?
wait $waits || true
exit $status"#;

/// The exit status of the visiting side, and the output of both sides.
fn two_hosts(mtu: u32, variable: &str) -> (Option<i32>, String) {
    let output = apart(&format!("MTU={mtu}; VARIABLE={variable}\n{BRIDGED}"));
    let out = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).lines().all(|line| line.chars().count() <= 80), "{out}");
    (output.status.code(), out)
}

/// DOC-7: each side says which packets cross. Lost packets are told apart from packets that are too
/// long.
#[test]
fn doctor_tries_the_way_to_another_host() {
    let (status, out) = two_hosts(1500, "A=b");
    let crosses = "ok    packets     RoCEv2 crosses both ways, with a path MTU of up to 1024\n";
    assert_eq!((status, out.matches(crosses).count()), (Some(0), 2), "{out}");
    let (status, out) = two_hosts(9000, "A=b");
    assert_eq!((status, out.matches(crosses).count()), (Some(1), 2), "{out}");
    assert_eq!(
        out.matches("FAIL  path MTU    packets of 2048 bytes do not cross").count(),
        2,
        "{out}"
    );
    let (status, out) = two_hosts(1500, "ADVERB_FAULT=drop=100%");
    assert_eq!((status, out.matches("UDP port 4791").count()), (Some(1), 2), "{out}");
    assert!(out.contains("packets from this host do not arrive"), "{out}");
}

/// DOC-7: a host needs no network to reach itself.
#[test]
fn doctor_wants_another_host() {
    let script = "ip link set lo up; $ADVERB doctor --listen 127.0.0.1 >&2 & \
                  until grep -q 0100007F:12B7 /proc/net/tcp; do sleep 0.05; done; \
                  $ADVERB doctor --with 127.0.0.1";
    let out = said(&apart(script), 1);
    // Lines are broken at 80 columns.
    let flat = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("FAIL peer") && flat.contains("an address of this host"), "{out}");
}

/// DOC-7: no process listens on the other host.
#[test]
fn doctor_says_that_nobody_waits() {
    let out = said(&apart("ip link set lo up; $ADVERB doctor --with 127.0.0.1"), 1);
    assert!(out.contains("FAIL  peer") && out.contains("doctor --listen"), "{out}");
}
