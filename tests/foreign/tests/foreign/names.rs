//! SYS-17, SYS-18: devices with names, and several equal devices, in a network namespace of the
//! test. Every view of the devices has the same list.

use adverb_foreign::Verdict;
use adverb_foreign::hosts::one_host;
use adverb_foreign::process::which;
use adverb_foreign::suite::{Case, case};

pub fn cases() -> Vec<Case> {
    vec![
        case("SYS-17/two_equal_devices_talk", || in_namespace(TWO)),
        case("SYS-17/devices_share_the_addresses_of_an_interface", || in_namespace(SHARED)),
        case("SYS-17/a_wrong_name_is_refused", || in_namespace(WRONG)),
        case("SYS-18/rdma_link_makes_and_removes_devices", || in_namespace(LINKS)),
        case("SYS-18/rdma_link_changes_one_run_alone", || in_namespace(RUNS)),
    ]
}

/// Two addresses at a cable, and the functions of the scripts.
const BEGIN: &str = r#"
cd "$(mktemp -d)"
ip link add net0 type veth peer name net1
up net0
up net1
ip addr add 192.0.2.1/24 dev net0
ip addr add 192.0.2.2/24 dev net0
try is net0 active
# agree NAME...: all views list these devices in this order.
agree() {
    echo "$*" | tr ' ' '\n' >wanted
    run ibv_devices | awk 'NR > 2 { print $1 }' >verbs
    run ibv_devinfo | sed -n 's/^hca_id:\s*//p' >devinfo
    run rdma link | sed 's/^link \(.*\)\/1 .*/\1/' >link
    run rdma dev | sed 's/^[0-9]*: \([^:]*\): .*/\1/' >dev
    run sh -c 'cat /sys/class/infiniband_verbs/uverbs*/ibdev' >sysfs
    run /usr/bin/python3 -c '
import pyverbs.device
for device in pyverbs.device.get_device_list():
    print(device.name.decode())' >pyverbs
    for view in verbs devinfo link dev sysfs pyverbs; do
        diff wanted $view || { echo "$view differs"; exit 1; }
    done
    run sh -c 'ls /sys/class/infiniband' >classes
    sort wanted | diff - classes
    # The GUIDs are different, and the same in each view.
    run ibv_devices | awk 'NR > 2 { print $2 }' >guids
    [ "$(sort -u guids | wc -l)" = $# ]
    run sh -c 'for i in $(cat wanted); do cat /sys/class/infiniband/$i/node_guid; done' | tr -d : | diff guids -
    run rdma dev | sed 's/.*node_guid \([^ ]*\) .*/\1/' | tr -d : | diff guids -
    run rdma dev | sed 's/.*sys_image_guid \([^ ]*\).*/\1/' | tr -d : | diff guids -
}
# pingpong A B: 100 messages from device B to device A.
pingpong() {
    run ibv_rc_pingpong -d "$1" -g 0 -n 100 >server & server=$!
    listens() { ss -Hltn | grep -q :18515; }
    try listens
    run ibv_rc_pingpong -d "$2" -g 0 -n 100 127.0.0.1 >client
    wait $server
    grep "local address.*GID" client
    grep "100 iters" client
}
"#;

const TWO: &str = r#"
export ADVERB_DEVICES=rxe0@192.0.2.1,rxe1@192.0.2.2
agree rxe0 rxe1
pingpong rxe0 rxe1 | grep "GID ::ffff:192.0.2.2"
ADVERB_PATH=wire pingpong rxe1 rxe0 | grep "GID ::ffff:192.0.2.1"
# rdma_cm finds each device by its address.
run rping -s -a 192.0.2.1 -C 3 & server=$!
ping() { run rping -c -a 192.0.2.1 -I 192.0.2.2 -C 3 -v >pinged 2>&1; }
try ping
wait $server
grep -c "ping data" pinged | grep -x 3
# Addresses of loopback that no interface lists, toward a server at all addresses.
export ADVERB_DEVICES=siw0@127.0.0.2,siw1@127.0.0.3
agree siw0 siw1
pingpong siw0 siw1 | grep "GID ::ffff:127.0.0.3"
run rping -s -C 3 & server=$!
ping() { run rping -c -a 127.0.0.3 -C 3 >pinged 2>&1; }
try ping
wait $server
echo "ok names"
"#;

const SHARED: &str = r#"
run() { "$ADVERB" run --device mlx5_0@net0 --device mlx5_1@net0,mlx5_bond --device adverb0 -- "$@"; }
agree mlx5_0 mlx5_1 mlx5_bond adverb0
pingpong mlx5_0 mlx5_1 | grep "GID ::ffff:192.0.2.1"
run ibv_devinfo -v -d mlx5_1 >one
grep "GID.*::ffff:192.0.2.2" one
! grep "GID.*::ffff:127.0.0.1" one
run ibv_devinfo -v -d mlx5_bond | grep "GID.*::ffff:127.0.0.1"
# A GUID depends on the name, and not on the place in the list.
"$ADVERB" run --device mlx5_1@net0 -- ibv_devices | tail -1 >alone
run ibv_devices | grep mlx5_1 | diff - alone
echo "ok names"
"#;

const WRONG: &str = r#"
refused() {
    status=0
    "$ADVERB" run --device "$1" -- true 2>said || status=$?
    cat said
    [ $status = 125 ] && grep -q -- "$2" said
}
refused rxe0@eth9 "there is no interface eth9; there are: "
refused rxe0@192.0.2.9 "no interface has the address 192.0.2.9: choose"
refused rxe0@net0,rxe0@lo "two devices are named rxe0: give each"
refused a/b@net0 "cannot name a device: a name has"
refused net0,adverb_net0@lo "two devices are named adverb_net0: give each"
echo "ok names"
"#;

/// The devices come and go for the later processes of the same shell, under `adverb env`.
const LINKS: &str = r#"
variables=$("$ADVERB" env --shell)
eval "export $(echo "$variables" | tr '\n' ' ')"
run() { "$@"; }
agree adverb0
rdma link add rxe0 type rxe netdev net0
agree adverb0 rxe0
rdma link add siw0 type siw netdev net0 2>said
grep "siw0 speaks RoCEv2" said
agree adverb0 rxe0 siw0
pingpong rxe0 siw0 | grep "GID ::ffff:192.0.2.1"
[ "$(realpath /sys/class/infiniband/rxe0)" = /sys/devices/virtual/adverb/rxe0/infiniband/rxe0 ]
# refused MESSAGE COMMAND...
refused() {
    message=$1; shift
    if "$@" >said 2>&1; then echo "not refused: $*"; exit 1; fi
    cat said
    grep "$message" said
}
refused "File exists" rdma link add rxe0 type rxe netdev net0
refused "No such device" rdma link add rxe1 type rxe netdev net9
refused "there is no interface net9; there are: " rdma link add rxe1 type rxe netdev net9
refused "rxe and siw are possible" rdma link add rxe1 type foo netdev net0
refused "cannot name a device" rdma link add .rxe type rxe netdev net0
refused "only a device" rdma link delete adverb0
agree adverb0 rxe0 siw0
# A nested run keeps the devices, unless an option chooses other devices.
"$ADVERB" run -- rdma link show rxe0/1 | grep "netdev net0"
[ "$("$ADVERB" run --device lo -- ibv_devices | awk 'NR > 2 { print $1 }')" = adverb_lo ]
rdma link delete rxe0
agree adverb0 siw0
rdma link delete siw0
agree adverb0
echo "ok names"
"#;

/// Two changes at the same moment are both done. Another run does not see the devices.
const RUNS: &str = r#"
run sh -e -c '
    rdma link add rxe0 type rxe netdev net0 & first=$!
    rdma link add rxe1 type rxe netdev net0 & second=$!
    wait $first
    wait $second
    ibv_devices' | awk 'NR > 2 { print $1 }' | sort >both
printf "adverb0\nrxe0\nrxe1\n" | diff - both
agree adverb0
echo "ok names"
"#;

fn in_namespace(script: &str) -> Verdict {
    ["rdma", "rping", "ibv_rc_pingpong", "ibv_devinfo", "ss", "python3"]
        .iter()
        .try_for_each(|tool| which(tool).map(drop))?;
    let out = one_host("devices with names", &format!("{BEGIN}{script}"), &[], &[])?;
    out.require_words(&["ok names"])
}
