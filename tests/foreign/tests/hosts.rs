//! Two hosts: the events of a program on one host after the death of a program on the other.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use adverb_foreign::hosts::two_hosts;
use adverb_foreign::process::which;
use adverb_foreign::suite::{case, run};
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
    let out = two_hosts(&format!("the {which_one} killed"), STEPS, &[which_one, told])?.wait(LIMIT);
    out.require_ok()?;
    require!(out.text.contains("DISCONNECT EVENT"), "{}", out.describe());
    Ok(())
}
