//! Two hosts, each a network namespace with one end of a cable, and what one sees of a process
//! killed on the other.
#![forbid(unsafe_code)]

use std::os::unix::fs::MetadataExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use adverb_foreign::process::{adverb, start, which};
use adverb_foreign::suite::{case, run};
use adverb_foreign::{Verdict, require};

const LIMIT: Duration = Duration::from_secs(60);

/// Two programs that talk without end. One is killed (`$1`), and the other (`$2`) has to end by
/// itself, with its words printed. Without being told it would wait for ever: nobody on the killed
/// one's host sends anything more.
const STEPS: &str = r#"
mount -t tmpfs none /run
ip link set lo up
ip netns add other
ip link add here type veth peer name there netns other
ip addr add 192.0.2.1/24 dev here
ip link set here addrgenmode none
ip link set here up
ip -n other link set lo up
ip -n other addr add 192.0.2.2/24 dev there
ip -n other link set there addrgenmode none
ip -n other link set there up
n=0
until "$ADVERB" devices | grep -q adverb_here && ip netns exec other "$ADVERB" devices | grep -q adverb_there; do
    n=$((n + 1)); [ $n -lt 100 ] || { echo "the cable is not up"; exit 1; }
    sleep 0.1
done
fail() { echo "$1"; tail -c 1000 /run/server /run/client; kill -9 $server $client 2>/dev/null; exit 1; }
"$ADVERB" run -- rping -s -a 192.0.2.1 -C 100000000 >/run/server 2>&1 & server=$!
# It listens when its name is there.
n=0
until grep -q '@adverb-[0-9]*-cm-' /proc/net/unix; do
    n=$((n + 1)); [ $n -lt 200 ] || fail "nobody listens"
    sleep 0.1
done
ip netns exec other "$ADVERB" run -- rping -c -a 192.0.2.1 -C 100000000 >/run/client 2>&1 & client=$!
# Traffic over the cable shows that they talk.
n=0
while [ "$(awk '/here:/ { print $3 }' /proc/net/dev)" -lt 200 ]; do
    n=$((n + 1)); [ $n -lt 200 ] || fail "they do not talk"
    sleep 0.1
done
eval "killed=\$$1; told=\$$2"
kill -9 $killed || fail "$1 has ended by itself"
n=0
while kill -0 $told 2>/dev/null; do
    n=$((n + 1)); [ $n -lt 200 ] || { kill -9 $told; fail "$2 was not told"; }
    sleep 0.1
done
cat /run/$2
"#;

fn main() -> ExitCode {
    run(
        "hosts",
        vec![
            case("UCM-12/a_killed_server_is_told_of", || killed("server", "client")),
            case("UCM-12/a_killed_client_is_told_of", || killed("client", "server")),
        ],
    )
}

fn killed(which_one: &str, told: &str) -> Verdict {
    which("rping")?;
    let mut command = Command::new("unshare");
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "sh", "-e", "-c", STEPS, "sh", which_one, told]);
    command.env("ADVERB", adverb()?).env_remove("ADVERB_PATH");
    let out = start(command, format!("two hosts, the {which_one} killed"))?.wait(LIMIT);
    out.require_ok()?;
    require!(out.text.contains("DISCONNECT EVENT"), "{}", out.describe());
    Ok(())
}
