//! TRU-6: names from other users and hosts cannot control the terminal.
mod common;
use common::apart;

/// Creates an interface, programs and files, with names that have escape sequences or a newline, in
/// a network namespace of the test's own.
///
/// A program that has opened the device with the bad name logs the name when the link goes down.
/// The name of an interface cannot contain a newline. The name of a capture file can.
const STEPS: &str = r#"
export ADVERB_DEVICES=all
ip link set lo up
esc=$(printf '\033')
ip link add "e$esc[31m" type veth peer name there
ip addr add 192.0.2.1/24 dev "e$esc[31m"
ip link set there up
ip link set "e$esc[31m" up
n=0
until "$ADVERB" devices | grep -q 'active.*192.0.2.1'; do
    n=$((n + 1)); [ $n -lt 300 ] || { echo "the cable is not up"; exit 1; }
    sleep 0.1
done
"$ADVERB" devices
"$ADVERB" devices --json
"$ADVERB" doctor || true
"$ADVERB" doctor --json || true
"$ADVERB" explain "$esc[31m" || true
"$ADVERB" run -- "./evil$esc[31m" || true
"$ADVERB" "evil$esc[31m" || true
"$ADVERB" run -- env -i "./first$esc[31m" || true
"$ADVERB" run -- sh -c "cp \"\$(command -v ibv_devinfo)\" \"/tmp/adverb-evil-$$-$esc[31m\"
    env -i \"/tmp/adverb-evil-$$-$esc[31m\" >/dev/null; rm \"/tmp/adverb-evil-$$-$esc[31m\"" || true
ADVERB_LOG=trace "$ADVERB" run -- ibv_devinfo -d "adverb_e$esc[31m" >/dev/null
ADVERB_LOG=trace "$ADVERB" demo --device "adverb_e$esc[31m" --no-measure
dir=$(mktemp -d)
cd "$dir"
for name in "adverb_e$esc[31m" "adverb_gone$esc[31m"; do
    "$ADVERB" hunt --time 1s -- ibv_devinfo -d "$name" || true
    "$ADVERB" hunt --time 1s --pair -- ibv_devinfo -d "$name" -- ibv_devinfo -d "$name" || true
done
"$ADVERB" hunt --time 1s -- "./evil$esc[31m" || true
"$ADVERB" hunt --time 1s --pair -- ibv_devinfo -- "./evil$esc[31m" || true
export ADVERB_LOG=info ADVERB_CAPTURE="$dir/evil
forged"
"$ADVERB" run -- ibv_rc_pingpong -d "adverb_e$esc[31m" -g 1 >/dev/null 2>"$dir/log" &
waiter=$!
n=0
# TCP port 18515: the program has opened the device, and waits for its peer.
until grep -q ':4853 .* 0A' /proc/net/tcp /proc/net/tcp6; do
    n=$((n + 1)); [ $n -lt 300 ] || { echo "no program waits"; exit 1; }
    sleep 0.1
done
ip link set there down
until grep -q PortErr "$dir/log"; do
    n=$((n + 1)); [ $n -lt 600 ] || { echo "no event of the port"; exit 1; }
    sleep 0.1
done
kill $waiter
wait $waiter || true
cat "$dir/log" >&2
rm "$ADVERB_CAPTURE"
"$ADVERB" demo --device adverb_lo --no-measure
cd /
rm -r "$dir"
"#;

#[test]
fn tru_6_names_from_outside_do_not_steer_the_terminal() {
    let output = apart(STEPS);
    let errors = String::from_utf8_lossy(&output.stderr);
    // Lines with such a name in the logs of the drop-in library and of the command.
    for line in [
        "adverb: info: adverb_e\\u001b[31m: PortErr",
        "adverb: info: packets are captured in ",
        "adverb demo: info: packets are captured in ",
    ] {
        assert!(errors.contains(line), "no {line:?} in {errors:?}");
    }
    assert!(errors.contains("evil\\u000aforged"), "{errors:?}");
    for (stream, bytes) in [("output", &output.stdout), ("errors", &output.stderr)] {
        let text = String::from_utf8(bytes.clone()).expect("UTF-8");
        assert!(text.contains("\\u001b[31m"), "no name in {stream}: {text:?}");
        let raw = text.lines().find(|line| line.contains(|c: char| c.is_control() && c != '\t'));
        assert_eq!(raw, None, "in {stream}");
        let forged = text.lines().find(|line| line.starts_with("forged"));
        assert_eq!(forged, None, "in {stream}");
        // The JSON output is still valid, and contains the names unchanged.
        for line in text.lines().filter(|line| line.starts_with(['[', '{'])) {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        }
    }
}
