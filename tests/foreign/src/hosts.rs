//! Two hosts: two network namespaces, joined by a virtual cable.

use std::os::unix::fs::MetadataExt;
use std::process::Command;

use crate::process::{Running, adverb, start};

/// MTU of Ethernet.
pub const ETHERNET: u32 = 1500;

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

/// The helpers of the steps. The steps run on the first host. `$there COMMAND` runs a program on
/// the other host.
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
fail() { echo "$1"; tail -c 2000 /run/server /run/client; kill -9 $started 2>/dev/null; exit 1; }
there="ip netns exec other"
device_here() { "$ADVERB" devices | grep -q "here  *active"; }
device_there() { $there "$ADVERB" devices | grep -q "there  *active"; }
started=
wait_for "the cable is not up" 30 device_here
wait_for "the cable is not up" 30 device_there
"#;

/// The command that runs shell steps in the first of two namespaces with a cable of `mtu` bytes.
/// Arguments added to the command are those of the steps.
pub fn cabled(mtu: u32, steps: &str) -> Command {
    let mut command = Command::new("unshare");
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        command.args(["--user", "--map-root-user"]);
    }
    let steps = format!("mtu={mtu}{CABLE}{steps}");
    command.args(["--net", "--mount", "sh", "-e", "-c", &steps, "sh"]);
    command
}

/// Runs shell steps on the first of two hosts, with these arguments. `ADVERB` is the command under
/// test.
///
/// # Errors
/// The steps cannot be started.
pub fn two_hosts(what: &str, steps: &str, args: &[&str]) -> Result<Running, String> {
    let mut command = cabled(ETHERNET, &format!("{SET_UP}{steps}"));
    command.args(args).env("ADVERB", adverb()?).env_remove("ADVERB_PATH");
    start(command, format!("two hosts, {what}"))
}
