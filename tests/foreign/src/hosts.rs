//! Hosts of a test: a network namespace, or two of them, joined by a virtual cable.

use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use crate::process::{Finished, Running, adverb, start};

/// MTU of Ethernet.
const ETHERNET: u32 = 1500;

/// Makes a cable of `$mtu` bytes to a second namespace. The first namespace has the address
/// 192.0.2.1, the other one 192.0.2.2. `ip netns exec other COMMAND` runs a program there.
const CABLE: &str = r#"
mount -t tmpfs none /run
ip link set lo up
ip netns add other
ip link add here mtu $mtu type veth peer name there mtu $mtu netns other
ip addr add 192.0.2.1/24 dev here
ip link set here addrgenmode none
ip link set here up
ip -n other link set lo up
ip -n other addr add 192.0.2.2/24 dev there
ip -n other link set there addrgenmode none
ip -n other link set there up
"#;

/// The helpers of the steps on two hosts. The steps run on the first host. `$there COMMAND` runs a
/// program on the other host.
const SET_UP: &str = r#"
# WORD SECONDS COMMAND: repeats the command until it is true.
wait_for() {
    word=$1; n=$(($2 * 20)); shift 2
    until "$@"; do
        n=$((n - 1)); [ $n -gt 0 ] || fail "$word"
        sleep 0.05
    done
}
says() { [ -e /run/$2 ] && grep -q "$1" /run/$2; }
fail() { echo "$1"; tail -c 2000 /run/server /run/client || true; kill -9 $started 2>/dev/null; exit 1; }
there="ip netns exec other"
device_here() { "$ADVERB" devices | grep -q "here  *active"; }
device_there() { $there "$ADVERB" devices | grep -q "there  *active"; }
started=
wait_for "the cable is not up" 30 device_here
wait_for "the cable is not up" 30 device_there
"#;

/// The helpers of the steps on one host.
const ONE_HOST: &str = r#"
# COMMAND: repeats the command until it is true.
try() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 600 ] || { echo "never: $*"; ip addr; exit 1; }; sleep 0.1; done; }
run() { "$ADVERB" run -- "$@"; }
# INTERFACE STATE: the device of the interface is in this state.
is() { "$ADVERB" devices $options | grep -q "$1  *$2"; }
# No address of this interface is automatic.
up() { ip link set $1 addrgenmode none; ip link set $1 up; }
ip link set lo up
"#;
/// Time limit of the steps on one host.
const ONE_LIMIT: Duration = Duration::from_secs(120);

/// Whether this process is root, at least in its user namespace.
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// The command that runs shell steps as root of new network and mount namespaces. Arguments added
/// to the command are those of the steps.
pub fn namespaces(steps: &str) -> Command {
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "--mount", "sh", "-e", "-c", steps, "sh"]);
    command
}

/// The command that runs shell steps in the first of two namespaces with a cable of `mtu` bytes.
pub fn cabled(mtu: u32, steps: &str) -> Command {
    namespaces(&format!("mtu={mtu}{CABLE}{steps}"))
}

/// Starts shell steps in a namespace with a loopback interface, with these arguments and variables.
/// `ADVERB` is the command under test.
///
/// # Errors
/// The steps cannot be started.
pub fn start_on_one_host(
    what: &str,
    steps: &str,
    args: &[&str],
    variables: &[(&str, &str)],
) -> Result<Running, String> {
    let mut command = namespaces(&format!("{ONE_HOST}{steps}"));
    command.args(args).env("ADVERB", adverb()?).env_remove("ADVERB_LOG");
    command.envs(variables.iter().copied());
    start(command, what.into())
}

/// Runs the steps of [`start_on_one_host`], and requires status 0.
///
/// # Errors
/// The steps cannot be started, or fail; with their output.
pub fn one_host(
    what: &str,
    steps: &str,
    args: &[&str],
    variables: &[(&str, &str)],
) -> Result<Finished, String> {
    start_on_one_host(what, steps, args, variables)?.wait(ONE_LIMIT).passed()
}

/// Runs shell steps on the first of two hosts, with these arguments, and requires status 0.
/// `ADVERB` is the command under test.
///
/// # Errors
/// The steps cannot be started, or fail; with their output.
pub fn two_hosts(
    what: &str,
    steps: &str,
    args: &[&str],
    limit: Duration,
) -> Result<Finished, String> {
    let mut command = cabled(ETHERNET, &format!("{SET_UP}{steps}"));
    command.args(args).env("ADVERB", adverb()?);
    for variable in ["ADVERB_PATH", "ADVERB_LOG", "ADVERB_DEVICES"] {
        command.env_remove(variable);
    }
    start(command, format!("two hosts, {what}"))?.wait(limit).passed()
}
