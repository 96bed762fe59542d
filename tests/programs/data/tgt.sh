#!/bin/sh
# Runs tgt's target over iSER with a file for a disk, and libiscsi as the initiator. The initiator
# reads the bytes of the file, then writes other bytes. BOUND is the initiator's name that the
# target lets in, beside any address. The default is the name of iser_disk.
# usage: tgt.sh INITIATOR MEBIBYTES [BOUND]
set -eu
disk=$1 mib=$2 bound=${3:-iqn.2026-01.test:initiator}
name=iqn.2026-01.test:disk url=iser://127.0.0.1:3260/iqn.2026-01.test:disk/1
d=$(mktemp -d)
cd "$d"
trap 'kill -KILL $tgtd 2>/dev/null || :; cat tgtd.out; rm -rf "$d"' EXIT
export TGT_IPC_SOCKET="$d/socket"
head -c "${mib}M" /dev/urandom >file

tgtd -f --iser port=3260,pool_sz_mb=128 >tgtd.out 2>&1 & tgtd=$!
n=0; until tgtadm --mode sys --op show >/dev/null 2>&1 || [ $n -ge 100 ]; do n=$((n + 1)); sleep 0.1; done
tgtadm --lld iser --mode target --op new --tid 1 -T $name
tgtadm --lld iser --mode logicalunit --op new --tid 1 --lun 1 -b "$d/file"
# Over iSER, tgt checks the address and the name of the initiator. Over TCP, either is enough.
tgtadm --lld iser --mode target --op bind --tid 1 -I ALL
tgtadm --lld iser --mode target --op bind --tid 1 -Q "$bound"

status=0
"$disk" read $url back || status=$?
echo "tgt: initiator $status"
if [ $status -eq 0 ]; then
    cmp file back && echo "tgt: read the same bytes"
    head -c "${mib}M" /dev/urandom >other
    "$disk" write $url other
    cmp file other && echo "tgt: wrote the same bytes"
    # A change of the file must reach the initiator. So neither side answers from earlier reads or
    # writes.
    printf 'adverb' | dd of=file bs=1 seek=12345 conv=notrunc status=none
    "$disk" read $url back
    cmp file back && echo "tgt: saw the change"
    ! cmp -s other back && echo "tgt: and only there"
fi
# A signal does not end tgtd. A forced delete of sessions over iSER crashes tgtd, because conn_close
# calls ep_close, which the transport lacks. The sessions end by themselves after their connections.
n=0; until tgtadm --lld iser --mode target --op delete --tid 1 2>/dev/null || [ $n -ge 300 ]; do n=$((n + 1)); sleep 0.1; done
tgtadm --lld iser --mode system --op delete
status=0
wait $tgtd || status=$?
echo "tgt: target $status"
