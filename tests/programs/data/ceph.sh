#!/bin/sh
# Runs a monitor and an OSD of Ceph in a directory, with all messages by MS_TYPE. Then rados writes
# and reads, and the script compares.
# usage: ceph.sh DIR MS_TYPE DEVICE SECONDS; runs in a network namespace with a loopback interface
set -eu
d=$1 ms=$2 device=$3 seconds=$4
mkdir -p "$d/mon" "$d/osd" "$d/run"
cd "$d"
fsid=11111111-2222-3333-4444-555555555555
cat > ceph.conf <<C
[global]
fsid = $fsid
mon host = v2:127.0.0.1:3300
mon initial members = a
auth cluster required = none
auth service required = none
auth client required = none
public network = 127.0.0.0/8
ms cluster type = $ms
ms public type = $ms
ms type = $ms
ms async rdma device name = $device
ms async rdma gid idx = 0
ms async rdma local gid = 0000:0000:0000:0000:0000:ffff:7f00:0001
ms async rdma receive queue len = 256
ms async rdma receive buffers = 2048
ms async rdma buffer size = 65536
ms bind msgr1 = false
ms bind msgr2 = true
osd pool default size = 1
osd pool default min size = 1
osd crush chooseleaf type = 0
mon allow pool size one = true
osd memory target = 939524096
bluestore block size = 2147483648
run dir = $d/run
admin socket = $d/run/\$name.asok
log file = $d/\$name.log
mon data = $d/mon
osd data = $d/osd
pid file = $d/run/\$name.pid
keyring = $d/keyring
C
export CEPH_CONF=$d/ceph.conf
monmaptool --create --addv a '[v2:127.0.0.1:3300]' --fsid $fsid monmap >/dev/null
touch keyring
ceph-mon --mkfs -i a --monmap monmap --keyring keyring
ceph-mon -f -i a > mon.out 2>&1 & mon=$!
trap 'kill $mon ${osd:-} 2>/dev/null; wait; tail -n 5 mon.out osd.out' EXIT
for _ in 1 2 3 4 5 6 7 8; do timeout 8 ceph -s >/dev/null 2>&1 && break; done
timeout 10 ceph -s
id=$(timeout 20 ceph osd create 22222222-2222-3333-4444-555555555555)
ceph-osd -i $id --mkfs --osd-uuid 22222222-2222-3333-4444-555555555555 > mkfs.out 2>&1
timeout 20 ceph osd crush add osd.$id 1 root=default
ceph-osd -f -i $id > osd.out 2>&1 & osd=$!
for _ in $(seq 30); do timeout 10 ceph osd stat 2>/dev/null | grep -q ' 1 up' && break; sleep 1; done
timeout 10 ceph osd stat
timeout 20 ceph osd pool create bench 8 8
timeout $((seconds + 60)) rados -p bench bench "$seconds" write -b 1048576 -t 8 --no-cleanup
timeout $((seconds + 60)) rados -p bench bench "$seconds" seq -t 8
dd if=/dev/urandom of=$d/blob bs=1M count=20 2>/dev/null
timeout 30 rados -p bench put blob $d/blob; timeout 30 rados -p bench get blob $d/back; cmp "$d/blob" "$d/back" && echo "ceph: the same bytes"
