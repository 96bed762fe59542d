//! Reads the capture file of a process block by block. The device's own parser reads the packets.
mod common;
use adverb_device::capture;
use adverb_device::engine::{SendOp, WcStatus};
use adverb_wire::{Headers, Operation};
use common::{QpEnd, child, loopback, pattern, rc};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The environment variable with the path of the capture file.
const FILE: &str = "ADVERB_TEST_FILE";

fn file(name: &str) -> PathBuf {
    let path =
        std::env::temp_dir().join(format!("adverb-device-{name}-{}.pcapng", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// A captured packet.
struct Seen {
    /// The bytes from the BTH to the end of the padding.
    bytes: Vec<u8>,
    sent: bool,
    comment: String,
}

fn packets(mut bytes: &[u8]) -> Vec<Seen> {
    const HEADERS: usize = 20 + 8;
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    };
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let block = &bytes[..word(bytes, 4)];
        assert_eq!(word(block, block.len() - 4), block.len());
        if word(block, 0) == 6 {
            let frame = &block[28..28 + word(block, 20)];
            // The flags are the last option. Only the end-of-options mark and the length of the
            // block follow.
            let flags = word(block, block.len() - 12);
            assert_eq!(frame[0], 0x45, "IPv4");
            let option = &block[28 + word(block, 20).next_multiple_of(4)..];
            assert_eq!(option[..2], [1, 0], "a comment");
            let len = usize::from(u16::from_le_bytes([option[2], option[3]]));
            let comment = String::from_utf8(option[4..4 + len].to_vec()).unwrap();
            all.push(Seen {
                bytes: frame[HEADERS..frame.len() - 4].to_vec(),
                sent: flags == 2,
                comment,
            });
        }
        bytes = &bytes[block.len()..];
    }
    all
}

/// Number of packets that were sent and not received. Each received packet must have been sent.
fn only_sent<'a>(packets: impl IntoIterator<Item = &'a Seen>) -> i32 {
    let mut balance: BTreeMap<&[u8], i32> = BTreeMap::new();
    for packet in packets {
        *balance.entry(&packet.bytes).or_default() += if packet.sent { 1 } else { -1 };
    }
    assert!(balance.values().all(|n| *n >= 0), "received and not sent");
    balance.values().sum()
}

#[test]
fn what_is_sent_and_received_is_in_the_file() {
    let path = file("operations");
    child::run("inner_operations", &[(FILE, path.to_str().unwrap()), ("ADVERB_PATH", "wire")]);
    let all = packets(&std::fs::read(&path).unwrap());
    let seen: BTreeSet<u8> =
        all.iter().map(|p| Headers::parse(&p.bytes).unwrap().0.bth.opcode.as_u8()).collect();
    // Both ends are in this process, so each packet is there twice. On a slow machine,
    // retransmissions at the end may be there only once.
    assert!(only_sent(&all) <= 3, "sent and not received");
    use Operation::*;
    for operation in [
        SendFirst,
        SendMiddle,
        SendLast,
        SendOnly,
        SendOnlyImm,
        WriteFirst,
        WriteLastImm,
        ReadRequest,
        ReadResponseFirst,
        ReadResponseLast,
        Acknowledge,
        AtomicAcknowledge,
    ] {
        let rc = adverb_wire::Opcode::new(adverb_wire::Transport::Rc, operation).unwrap();
        assert!(seen.contains(&rc.as_u8()), "no {rc:?}");
    }
    std::fs::remove_file(path).unwrap();
}

/// CAP-2, CAP-3: with a capture, packets stay on the path within the host, and the capture records
/// them there. A one-sided request is recorded as the packets that a NIC would send.
#[test]
fn cap_2_a_capture_leaves_the_path_as_it_is() {
    let path = file("near");
    let text =
        child::run("inner_operations", &[(FILE, path.to_str().unwrap()), ("ADVERB_PATH", "local")]);
    let counters = text.lines().find(|l| l.contains("counters:")).unwrap();
    // Two WRITEs, two READs and two atomics.
    assert!(
        counters.contains(" qp_one_sided=6 ") && counters.contains(" ring_sent="),
        "{counters}"
    );
    assert!(!counters.contains(" tx_packets="), "{counters}");
    let all = packets(&std::fs::read(&path).unwrap());
    std::fs::remove_file(path).unwrap();
    let (near, performed): (Vec<_>, Vec<_>) =
        all.iter().partition(|p| p.comment.ends_with("through shared memory"));
    let count = |sent| near.iter().filter(|p| p.sent == sent).count();
    let tx_ring = format!(" ring_sent={} ring_received={}", count(true), count(false));
    assert!(counters.contains(&tx_ring), "{tx_ring}: {counters}");
    only_sent(near);

    use Operation::*;
    let kinds = |p: &&&Seen| Headers::parse(&p.bytes).unwrap().0.bth.opcode.operation();
    let found: Vec<(Operation, bool)> = performed.iter().map(|p| (kinds(&p), p.sent)).collect();
    let read = [(ReadRequest, true), (ReadResponseOnly, false)];
    let add = [(FetchAdd, true), (AtomicAcknowledge, false)];
    assert_eq!(found, [&[(WriteOnly, true); 2][..], &read, &read, &add, &add].concat());
    let data = pattern(5000, 1);
    for (place, packet) in performed.iter().enumerate() {
        assert!(packet.comment.starts_with("performed by the initiator in shared memory"));
        let (headers, payload) = Headers::parse(&packet.bytes).unwrap();
        let size = if matches!(place, 1 | 4 | 5) { 5000 } else { 8 };
        match headers.bth.opcode.operation() {
            WriteOnly | ReadResponseOnly => assert!(payload == &data[..size], "packet {place}"),
            FetchAdd => assert_eq!(headers.atomic.unwrap().swap_add, 1),
            AtomicAcknowledge => {
                let old = u64::from_ne_bytes(data[..8].try_into().unwrap());
                let times = (place as u64 - 7) / 2;
                assert_eq!(headers.atomic_ack.unwrap().original, old + times);
            }
            _ => assert_eq!(headers.reth.unwrap().len as usize, size),
        }
        assert!(payload.is_empty() || headers.reth.is_none_or(|reth| reth.len as usize == size));
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_operations() {
    child::log();
    capture::set(std::env::var_os(FILE).unwrap()).unwrap();
    let (a, b) = rc();
    assert_eq!(capture::set("x").unwrap_err().errno(), adverb_device::Errno::EBUSY as i32);
    let remote = b.remote(0);
    a.put(0, &pattern(5000, 1));
    for op in [
        SendOp::Send,
        SendOp::SendImm(7),
        SendOp::Write(remote),
        SendOp::WriteImm(remote, 8),
        SendOp::Read(remote),
        SendOp::FetchAdd { remote, add: 1 },
    ] {
        for size in [8, 5000] {
            let size = if matches!(op, SendOp::FetchAdd { .. }) { 8 } else { size };
            exchange(&a, &b, op, size);
        }
    }
}

fn exchange(a: &QpEnd, b: &QpEnd, op: SendOp, size: usize) {
    let receives = matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::WriteImm(..));
    if receives {
        b.recv(1, &[b.sge(1 << 20, 5000)]);
    }
    assert_eq!(a.perform(op, &[a.sge(0, size)]), WcStatus::Success);
    if receives {
        assert_eq!(b.wait(1)[0].status, WcStatus::Success);
    }
}

#[test]
fn a_file_that_cannot_be_had_harms_nothing() {
    let text = child::run("inner_no_file", &[("ADVERB_CAPTURE", "/no/such/directory/a.pcapng")]);
    assert!(
        text.contains("error: packets are not captured: /no/such/directory/a.pcapng"),
        "{text}"
    );
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_no_file() {
    child::log();
    loopback().open().unwrap();
    let (a, b) = rc();
    exchange(&a, &b, SendOp::Send, 8);
}
