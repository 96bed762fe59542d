//! TRU-6: names that others choose do not steer the terminal.
use std::process::{Command, Output};

/// An interface and a program whose names have escape sequences, in a network namespace of the
/// test's own.
const STEPS: &str = r#"
ip link set lo up
esc=$(printf '\033')
ip link add "e$esc[31m" type veth peer name there
ip addr add 192.0.2.1/24 dev "e$esc[31m"
ip link set there up
ip link set "e$esc[31m" up
n=0
until "$ADVERB" devices | grep -q 192.0.2.1; do
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
ADVERB_LOG=trace "$ADVERB" demo >/dev/null
"#;

fn run() -> Output {
    let mut command = Command::new("unshare");
    let root = nix::unistd::Uid::effective().is_root();
    command.args(if root { &["-n"][..] } else { &["-rn"] });
    command.args(["sh", "-c", STEPS]).env("ADVERB", env!("CARGO_BIN_EXE_adverb")).env_remove("ADVERB_LOG");
    command.output().expect("unshare starts")
}

#[test]
fn tru_6_names_from_outside_do_not_steer_the_terminal() {
    let output = run();
    for (stream, bytes) in [("output", &output.stdout), ("errors", &output.stderr)] {
        let text = String::from_utf8(bytes.clone()).expect("UTF-8");
        assert!(text.contains("\\u001b[31m"), "no name in {stream}: {text:?}");
        let raw = text.lines().find(|line| line.contains(|c: char| c.is_control() && c != '\t'));
        assert_eq!(raw, None, "in {stream}");
        // JSON is JSON still, and has the name as it is.
        for line in text.lines().filter(|line| line.starts_with(['[', '{'])) {
            serde_json::from_str::<serde_json::Value>(line).expect("JSON");
        }
    }
}
