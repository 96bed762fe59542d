//! The capture file of a process, block by block, with the reading of packets that the device
//! itself uses.
mod common;
use adverb_device::capture;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{PathMtu, QpType, SendOp, WcStatus};
use adverb_wire::{Headers, Operation};
use common::{End, child, loopback, pair, pattern};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where a test and the process it starts meet.
const FILE: &str = "ADVERB_TEST_FILE";

fn file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("adverb-device-{name}-{}.pcapng", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

/// Bytes from the BTH to the end of the pad, and whether they were sent.
fn packets(mut bytes: &[u8]) -> Vec<(Vec<u8>, bool)> {
    const HEADERS: usize = 20 + 8;
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let block = &bytes[..word(bytes, 4)];
        assert_eq!(word(block, block.len() - 4), block.len());
        if word(block, 0) == 6 {
            let frame = &block[28..28 + word(block, 20)];
            // The flags are the last option, before the end of options and the length.
            let flags = word(block, block.len() - 12);
            assert_eq!(frame[0], 0x45, "IPv4");
            all.push((frame[HEADERS..frame.len() - 4].to_vec(), flags == 2));
        }
        bytes = &bytes[block.len()..];
    }
    all
}

#[test]
fn what_is_sent_and_received_is_in_the_file() {
    let path = file("operations");
    child::run("inner_operations", &[(FILE, path.to_str().unwrap())]);
    let all = packets(&std::fs::read(&path).unwrap());
    let mut balance: BTreeMap<&[u8], i32> = BTreeMap::new();
    let mut seen: BTreeMap<u8, usize> = BTreeMap::new();
    for (bytes, sent) in &all {
        let (headers, _) = Headers::parse(bytes).unwrap();
        *seen.entry(headers.bth.opcode.as_u8()).or_default() += 1;
        *balance.entry(bytes).or_default() += if *sent { 1 } else { -1 };
    }
    // Both ends are in this process: each packet is there twice, but for what a slow machine sends
    // again at the end.
    assert!(balance.values().all(|n| *n >= 0), "received and not sent");
    assert!(balance.values().sum::<i32>() <= 3, "sent and not received");
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
        assert!(seen.contains_key(&rc.as_u8()), "no {rc:?}");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_operations() {
    child::log();
    capture::set(std::env::var_os(FILE).unwrap()).unwrap();
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu1024);
    assert_eq!(capture::set("x").unwrap_err().errno(), adverb_device::Errno::EBUSY as i32);
    let remote = Remote { va: b.pages.addr(), rkey: b.pages.key() };
    assert!(a.pages.write_at(0, &pattern(5000, 1)));
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

fn exchange(a: &End, b: &End, op: SendOp, size: usize) {
    let receives = matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::WriteImm(..));
    if receives {
        b.recv(1, &[b.sge(1 << 20, 5000)]);
    }
    a.send(2, op, &[a.sge(0, size)]);
    assert_eq!(a.wait(1)[0].status, WcStatus::Success);
    if receives {
        assert_eq!(b.wait(1)[0].status, WcStatus::Success);
    }
}

#[test]
fn a_file_that_cannot_be_had_harms_nothing() {
    let text = child::run("inner_no_file", &[("ADVERB_CAPTURE", "/no/such/directory/a.pcapng")]);
    assert!(text.contains("error: packets are not captured: /no/such/directory/a.pcapng"), "{text}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_no_file() {
    child::log();
    loopback().open().unwrap();
    let (a, b) = pair(QpType::Rc, PathMtu::Mtu1024);
    exchange(&a, &b, SendOp::Send, 8);
}
