//! Faults and captures over real sockets: each fault has its effect on every path of packets.
mod common;
use adverb_link::faults::{Delay, DropPsn, PacketFaults, Rate};
use adverb_link::{Capture, Config, Route, TxBatch};
use adverb_local::{Delivery, add_packet};
use common::{Member, V4, V6, config, port, push, qpn, wait};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const COUNT: u32 = 400;

/// A receiver with faults for its queue pair 5, and the PSNs of the packets that arrived of
/// [`COUNT`] sent.
fn through(faults: PacketFaults, ip: IpAddr, directly: bool) -> (Member, Vec<u32>) {
    let port = port();
    let (sender, from) = Member::at(config(port), ip);
    let (receiver, _) = Member::at(Config { faults, ..config(port) }, ip);
    let to = qpn(receiver.slot(), 5);
    receiver.link.tap().add_qp(to, 1);
    let route = Route::new(from, SocketAddr::new(ip, port));
    if directly {
        for psn in 0..COUNT {
            let mut message = Vec::new();
            add_packet(&mut message, &common::bth(to, psn), 0, 0, |_| true);
            assert!(wait(
                || sender.link.deliver(receiver.slot(), &route, &message) == Delivery::Done
            ));
        }
    } else {
        let mut batch = TxBatch::default();
        for psn in 0..COUNT {
            push(&mut batch, &sender.link, &route, to, psn, 100);
        }
        batch.flush(&sender.link);
    }
    let met = |node: &Member| {
        let s = node.link.stats();
        (s.rx_packets + s.faults.drop + s.faults.corrupt).saturating_sub(s.faults.dup)
    };
    assert!(wait(|| met(&receiver) == u64::from(COUNT)), "{:?}", receiver.link.stats());
    let got = receiver.take(0);
    (
        receiver,
        got.iter().map(|p| u32::from_be_bytes([0, p.bytes[9], p.bytes[10], p.bytes[11]])).collect(),
    )
}

fn rate(percent: u32) -> Rate {
    Rate::per_billion(percent * 10_000_000).unwrap()
}

#[test]
fn dropped_packets_are_missing_and_the_same_ones_each_time() {
    let faults = PacketFaults { seed: 3, drop: rate(10), ..PacketFaults::default() };
    let (receiver, first) = through(faults.clone(), V4, false);
    let stats = receiver.link.stats();
    assert!(stats.faults.drop > 0);
    assert_eq!(first.len() as u64 + stats.faults.drop, u64::from(COUNT));
    for (ip, directly) in [(V6, false), (V4, true)] {
        assert_eq!(through(faults.clone(), ip, directly).1, first, "another way, other faults");
    }
}

#[test]
fn damaged_packets_fall_to_the_icrc_check() {
    for (ip, directly) in [(V4, false), (V6, false), (V4, true)] {
        let faults = PacketFaults { corrupt: rate(20), ..PacketFaults::default() };
        let (receiver, got) = through(faults, ip, directly);
        let stats = receiver.link.stats();
        assert!(stats.faults.corrupt > 0);
        // `fault_corrupt` is counted before `rx_drop_icrc`.
        assert!(wait(|| receiver.link.stats().rx_drop_icrc == stats.faults.corrupt));
        assert_eq!(got.len() as u64 + stats.faults.corrupt, u64::from(COUNT));
    }
}

#[test]
fn doubled_packets_come_twice_in_a_row() {
    let faults = PacketFaults { dup: rate(10), ..PacketFaults::default() };
    let (receiver, mut got) = through(faults, V4, false);
    assert!(receiver.link.stats().faults.dup > 0);
    assert_eq!(got.len() as u64, u64::from(COUNT) + receiver.link.stats().faults.dup);
    assert!(got.is_sorted());
    got.dedup();
    assert_eq!(got.len(), COUNT as usize);
}

#[test]
fn overtaken_and_delayed_packets_all_arrive() {
    let delay = Delay { mean: Duration::from_millis(1), spread: Duration::from_millis(1) };
    for (delay, reorder) in [(None, rate(10)), (Some(delay), Rate::NEVER), (Some(delay), rate(10))]
    {
        let faults = PacketFaults { delay, reorder, ..PacketFaults::default() };
        let (receiver, mut got) = through(faults, V4, false);
        let stats = receiver.link.stats();
        assert_eq!(stats.faults.reorder > 0, reorder > Rate::NEVER);
        assert_eq!(stats.faults.delay > 0, delay.is_some());
        assert_eq!(got.is_sorted(), reorder == Rate::NEVER, "{got:?}");
        got.sort_unstable();
        assert!(got == (0..COUNT).collect::<Vec<_>>());
        assert!(wait(|| receiver.link.tap().delayed_for().is_none()));
    }
}

#[test]
fn a_psn_is_dropped_once() {
    let faults =
        PacketFaults { drop_psn: vec![DropPsn { psn: 17, at: None }], ..PacketFaults::default() };
    let (_, got) = through(faults, V4, false);
    assert_eq!(got, (0..COUNT).filter(|psn| *psn != 17).collect::<Vec<_>>());
}

/// Both ends record the same bytes including the ICRC, although the receiver strips the ICRC.
#[test]
fn both_ends_record_the_same_packets() {
    let directory =
        std::env::temp_dir().join(format!("adverb-link-capture-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for (name, ip) in [("v4", V4), ("v6", V6)] {
        let port = port();
        let file = |end: &str| directory.join(format!("{name}-{end}.pcapng"));
        let capture = |end: &str| Some(Arc::new(Capture::create(&file(end), u64::MAX).unwrap()));
        let (sender, from) = Member::at(Config { capture: capture("tx"), ..config(port) }, ip);
        let (receiver, _) = Member::at(Config { capture: capture("rx"), ..config(port) }, ip);
        let route = Route::new(from, SocketAddr::new(ip, port));
        let mut batch = TxBatch::default();
        for psn in 0..40 {
            push(
                &mut batch,
                &sender.link,
                &route,
                qpn(receiver.slot(), 5),
                psn,
                100 - psn as usize / 10,
            );
        }
        batch.flush(&sender.link);
        receiver.take(40);
        drop((sender, receiver));
        let frames = |end: &str| frames(&std::fs::read(file(end)).unwrap());
        let (sent, received) = (frames("tx"), frames("rx"));
        assert_eq!(sent.len(), 40);
        assert!(sent == received, "{name}: {:02x?} instead of {:02x?}", received[0], sent[0]);
    }
    std::fs::remove_dir_all(directory).unwrap();
}

/// The packets of a capture file.
fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let word = |bytes: &[u8], at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
    };
    let mut all = Vec::new();
    while !bytes.is_empty() {
        if word(bytes, 0) == 6 {
            all.push(bytes[28..28 + word(bytes, 20)].to_vec());
        }
        bytes = &bytes[word(bytes, 4)..];
    }
    all
}
