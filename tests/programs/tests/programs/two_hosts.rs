//! SYS-12: programs that choose devices themselves run between two hosts with the default devices.
//! Each host has loopback, a cable, and a bridge with the same address on both hosts, as Docker
//! makes it. Nothing names a device.

use std::time::Duration;

use adverb_foreign::Verdict;
use adverb_foreign::hosts::two_hosts;
use adverb_foreign::process::which;
use adverb_foreign::require;
use adverb_foreign::suite::{Case, case};
use adverb_programs::data_dir;
use adverb_programs::fetch::{self, PYTHON};
use adverb_programs::openmpi::compile;

const LIMIT: Duration = Duration::from_secs(300);
const NIXL: &str = "nixl-cu12==1.5.1";

/// The second host has a boot id and a name of its own, so that UCX does not find shared memory.
const SET_UP: &str = r#"
for of in "" "-n other"; do
    ip $of link add docker0 type bridge
    ip $of addr add 172.17.0.1/16 dev docker0
    ip $of link set docker0 up
done
echo 11111111-2222-4333-8444-555555555555 >/run/boot_id
cat >/run/there <<'END'
#!/bin/sh
exec ip netns exec other unshare --uts --mount sh -c 'hostname other
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
exec "$@"' sh "$@"
END
chmod +x /run/there
server=
trap '[ -z "$server" ] || kill $server 2>/dev/null' EXIT
"#;

/// RoCEv2 is the only UDP between these hosts.
const SENT: &str = r#"
echo "datagrams $(awk '/^Udp: [0-9]/ { print $5 }' /proc/net/snmp)"
"#;

const UCX: &str = r#"
"$ADVERB" run -- ucx_perftest >/run/server 2>&1 & server=$!
# TCP port 13337, in state LISTEN.
wait_for "the server does not listen" 60 grep -qs ':3419 .* 0A ' /proc/net/tcp /proc/net/tcp6
/run/there "$ADVERB" run -- ucx_perftest 192.0.2.1 -t tag_lat -s 8 -n 1000 -w 10 || { cat /run/server; exit 1; }
wait $server || { cat /run/server; exit 1; }
server=
"#;

/// The launcher of MPICH starts the ranks of the other host by this script, in place of `ssh`.
const MPICH: &str = r#"
cat >/run/launch <<'END'
#!/bin/sh
[ "$1" != -x ] || shift
host=$1; shift
[ "$host" != 192.0.2.2 ] || exec /run/there sh -c "$*"
exec sh -c "$*"
END
chmod +x /run/launch
mpiexec.mpich -launcher ssh -launcher-exec /run/launch -hosts 192.0.2.1,192.0.2.2 -iface here \
    -n 2 -ppn 1 "$ADVERB" run -- "$1" ring 200
"#;

const TRANSFERS: &str = r#"
export PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1
"$ADVERB" run -- "$2" "$3" target /run >/run/server 2>&1 & server=$!
/run/there "$ADVERB" run -- "$2" "$3" initiator /run || { cat /run/server; exit 1; }
wait $server || { cat /run/server; exit 1; }
server=
cat /run/server
"#;

pub fn cases() -> Vec<Case> {
    vec![
        case("SYS-12/ucx", || {
            which("ucx_perftest")?;
            between("UCX", UCX, &[], "Final:")
        }),
        case("SYS-12/mpich", mpich),
        case("SYS-12/nixl", nixl),
    ]
}

/// Runs steps on the first of two hosts. The output must have `words`, and the messages must have
/// crossed the cable as RoCEv2.
fn between(what: &str, steps: &str, args: &[&str], words: &str) -> Verdict {
    let out = two_hosts(what, &format!("{SET_UP}{steps}{SENT}"), args, LIMIT)?;
    out.require_words(&[words])?;
    let sent = out.text.lines().find_map(|line| line.strip_prefix("datagrams "));
    let sent = sent.and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
    // A datagram holds many packets (GSO).
    require!(sent >= 20, "the messages took another way: {}", out.describe());
    Ok(())
}

fn mpich() -> Verdict {
    which("mpiexec.mpich")?;
    // MPICH's header declares arrays that make warnings of right calls.
    let program = compile("mpicc.mpich", "mpi", &["-w"])?;
    between("MPICH", MPICH, &[&program], "ok ring with 2 ranks")
}

fn nixl() -> Verdict {
    let script = "\"$1\" -m pip install --quiet --target lib numpy && \
                  \"$1\" -m pip install --quiet --no-deps --target lib \"$2\"";
    let dir = fetch::once("nixl", |dir| fetch::sh(dir, script, &[PYTHON, NIXL]).map(|_| ()))?;
    let driver = data_dir().join("nixl_pair.py").display().to_string();
    let lib = dir.join("lib").display().to_string();
    between("NIXL", TRANSFERS, &[&lib, PYTHON, &driver], "ok nixl")
}
