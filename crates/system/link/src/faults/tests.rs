use super::*;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const QPN: u32 = 0x12_3456;

fn bytes(opcode: u8, psn: u32) -> [u8; 16] {
    let (q, p) = (QPN.to_be_bytes(), psn.to_be_bytes());
    [opcode, 0, 0xff, 0xff, 0, q[1], q[2], q[3], 0, p[1], p[2], p[3], 1, 2, 3, 4]
}

fn packet(bytes: &[u8]) -> RxPacket<'_> {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let src = SocketAddr::new(ip, 4791);
    RxPacket {
        src,
        dst: ip,
        local: None,
        traffic_class: 0,
        hop_limit: 64,
        proof: crate::packet::Proof::Wire,
        bytes,
    }
}

const SEND: u8 = 4;
const ACK: u8 = 0x11;

fn faults(rules: PacketFaults) -> Faults {
    let faults = Faults::new(rules);
    faults.add_qp(QPN, 1);
    faults
}

fn rate(percent: u32) -> Rate {
    Rate::per_billion(percent * 10_000_000).unwrap()
}

fn psn_of(packet: &OwnedPacket) -> u32 {
    let bytes = packet.packet().bytes;
    u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]])
}

/// The faults of packets 0 to `count`, and the PSNs in the order of arrival.
fn pass(faults: &Faults, opcode: u8, count: u32) -> (Vec<Fault>, Vec<u32>) {
    let mut order = Vec::new();
    let fates = (0..count).map(|psn| {
        let ruling = faults.judge(&packet(&bytes(opcode, psn)));
        order.extend(std::iter::repeat_n(psn, ruling.copies));
        order.extend(ruling.after.iter().map(psn_of));
        ruling.fault
    });
    (fates.collect(), order)
}

fn mixed(seed: u64) -> PacketFaults {
    PacketFaults {
        seed,
        drop: rate(5),
        dup: rate(4),
        reorder: rate(3),
        corrupt: rate(2),
        ..PacketFaults::default()
    }
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let (once, again) =
        (pass(&faults(mixed(7)), SEND, 5000).0, pass(&faults(mixed(7)), SEND, 5000).0);
    assert!(once == again);
    assert!(once != pass(&faults(mixed(8)), SEND, 5000).0, "the seed does nothing");
    let other = Faults::new(mixed(7));
    other.add_qp(QPN, 2);
    assert!(once != pass(&other, SEND, 5000).0, "queue pairs meet the same faults");
}

#[test]
fn responses_between_do_not_shift_the_faults_of_requests() {
    let once = pass(&faults(mixed(7)), SEND, 2000).0;
    let faults = faults(mixed(7));
    let mut again = Vec::new();
    for psn in 0..2000 {
        again.push(faults.judge(&packet(&bytes(SEND, psn))).fault);
        for _ in 0..psn % 3 {
            faults.judge(&packet(&bytes(ACK, psn)));
        }
    }
    assert!(once == again);
}

#[test]
fn shares_are_met() {
    let fates = pass(&faults(mixed(1)), SEND, 100_000).0;
    let count = |f: &dyn Fn(&Fault) -> bool| fates.iter().filter(|fate| f(fate)).count();
    for (share, found) in [
        (5.0, count(&|f| f.dropped)),
        (0.95 * 2.0, count(&|f| f.damaged.is_some())),
        (0.95 * 0.98 * 4.0, count(&|f| f.doubled)),
        (0.95 * 0.98 * 3.0, count(&|f| f.overtaken.is_some())),
    ] {
        let percent = found as f64 / 1000.0;
        assert!((percent - share).abs() < 0.3, "{percent} % instead of {share} %");
    }
    let always = PacketFaults { drop: Rate::ALWAYS, ..PacketFaults::default() };
    assert!(pass(&faults(always), SEND, 1000).0.iter().all(|f| f.dropped));
}

#[test]
fn faults_end_with_the_first_packets_if_they_are_to() {
    let drop_psn = vec![DropPsn { psn: 50, at: None }];
    let rules =
        PacketFaults { drop: Rate::ALWAYS, first: Some(10), drop_psn, ..PacketFaults::default() };
    let faults = faults(rules);
    assert_eq!(pass(&faults, SEND, 100).1, (10..100).filter(|psn| *psn != 50).collect::<Vec<_>>());
    assert_eq!(
        pass(&faults, ACK, 20).1,
        (10..20).collect::<Vec<_>>(),
        "responses are counted apart"
    );
}

#[test]
fn an_unknown_queue_pair_is_left_alone() {
    let faults = faults(PacketFaults { drop: Rate::ALWAYS, ..PacketFaults::default() });
    faults.remove_qp(QPN);
    assert_eq!(pass(&faults, SEND, 10).1, (0..10).collect::<Vec<_>>());
}

#[test]
fn overtaken_packets_come_a_little_later_and_none_is_lost() {
    let faults = faults(PacketFaults { reorder: rate(20), ..PacketFaults::default() });
    let (fates, mut order) = pass(&faults, SEND, 1000);
    assert!(fates.iter().any(|f| f.overtaken.is_some()));
    assert!(!order.is_sorted(), "nothing was reordered");
    // No packets overtake the last ones, so the last ones wait for their time.
    std::thread::sleep(OVERTAKEN);
    order.extend(faults.release().iter().map(psn_of));
    assert_eq!(faults.due_in(), None);
    assert_eq!(faults.state.lock().delayed, 0);
    order.sort_unstable();
    assert!(order == (0..1000).collect::<Vec<_>>(), "a packet is missing or double");
}

#[test]
fn delayed_packets_keep_their_order() {
    let delay = Delay { mean: Duration::from_millis(2), spread: Duration::from_millis(2) };
    let faults = faults(PacketFaults { delay: Some(delay), ..PacketFaults::default() });
    let (fates, order) = pass(&faults, SEND, 200);
    assert!(order.is_empty(), "{order:?}");
    let by: Vec<Duration> = fates.iter().filter_map(|f| f.delayed).collect();
    assert!(by.len() == 200 && by.iter().all(|by| *by <= 2 * delay.mean));
    assert!(by.iter().any(|by| *by < delay.mean) && by.iter().any(|by| *by > delay.mean));
    assert!(faults.due_in().is_some_and(|left| left <= 2 * delay.mean));
    let mut order = Vec::new();
    while let Some(left) = faults.due_in() {
        std::thread::sleep(left);
        order.extend(faults.release().iter().map(psn_of));
    }
    assert!(order == (0..200).collect::<Vec<_>>());
}

#[test]
fn a_psn_is_dropped_once_for_each_rule_and_queue_pair() {
    let rule = |psn, at| DropPsn { psn, at };
    let rules = PacketFaults {
        drop_psn: vec![
            rule(3, None),
            rule(3, Some(FaultTarget::Nth(1))),
            rule(5, Some(FaultTarget::Qpn(QPN))),
            rule(6, Some(FaultTarget::Nth(2))),
            rule(7, Some(FaultTarget::Qpn(QPN + 1))),
        ],
        ..PacketFaults::default()
    };
    let faults = faults(rules);
    let arrive = |psn| faults.judge(&packet(&bytes(SEND, psn))).copies;
    assert_eq!([3, 3, 3, 5, 5, 6, 7].map(arrive), [0, 0, 1, 0, 1, 1, 1]);
    // A queue pair created anew is a different queue pair.
    faults.remove_qp(QPN);
    faults.add_qp(QPN, 2);
    assert_eq!([3, 3, 5, 6, 6].map(arrive), [0, 1, 0, 0, 1]);
}

#[test]
fn no_more_than_so_many_are_delayed() {
    let delay = Delay { mean: Duration::from_secs(60), spread: Duration::ZERO };
    let faults = faults(PacketFaults { delay: Some(delay), ..PacketFaults::default() });
    let (_, order) = pass(&faults, SEND, MOST_DELAYED as u32 + 10);
    assert_eq!(order.len(), 10);
    faults.remove_qp(QPN);
    assert_eq!(faults.state.lock().delayed, 0);
}

#[test]
fn one_bit_is_flipped_and_never_one_that_the_icrc_leaves_out() {
    let good = bytes(SEND, 1);
    for draw in 0..8 * 16 {
        let bad = flipped(&good, draw);
        let changed: Vec<usize> = (0..good.len()).filter(|at| good[*at] != bad[*at]).collect();
        let [at] = changed[..] else { panic!("{changed:?}") };
        assert_eq!((good[at] ^ bad[at]).count_ones(), 1);
        assert_ne!(at, 4);
    }
}

/// FLT-3: packets that may be marked are marked at the rate, also delayed packets; other packets
/// are not.
#[test]
fn packets_that_may_be_are_marked() {
    let marking = || PacketFaults { seed: 7, ecn: rate(30), ..PacketFaults::default() };
    let bytes: Vec<_> = (0..1000).map(|psn| bytes(SEND, psn)).collect();
    let marked = |faults: &Faults, class: u8| {
        let judged = bytes.iter().filter(|bytes| {
            let packet = RxPacket { traffic_class: class, ..packet(&bytes[..]) };
            let fault = faults.judge(&packet).fault;
            let wanted = if fault.marked { class | 3 } else { class };
            assert_eq!(fault.mark(&packet).traffic_class, wanted);
            fault.marked
        });
        judged.count()
    };
    assert_eq!(marked(&faults(marking()), 0xb8), 0);
    let hit = marked(&faults(marking()), 0xba);
    assert!((200..400).contains(&hit), "{hit}");
    let delayed = faults(PacketFaults {
        delay: Some(Delay { mean: Duration::ZERO, spread: Duration::ZERO }),
        ecn: Rate::ALWAYS,
        ..marking()
    });
    delayed.judge(&RxPacket { traffic_class: 0xba, ..packet(&bytes[0]) });
    assert_eq!(delayed.release().first().map(|kept| kept.packet().traffic_class), Some(0xbb));
}

/// FLT-4: one queue pair's packets are delayed, another's are not, and the order stays.
#[test]
fn one_queue_pair_is_delayed() {
    let rule = DelayQp { nth: 2, time: Duration::from_millis(3) };
    let faults = Faults::new(PacketFaults { delay_qp: vec![rule], ..PacketFaults::default() });
    faults.add_qp(QPN, 1);
    assert!(pass(&faults, SEND, 9).0.iter().all(Fault::is_none));
    faults.add_qp(QPN, 2);
    let (fates, now) = pass(&faults, SEND, 9);
    assert!(now.is_empty() && fates.iter().all(|fault| fault.delayed == Some(rule.time)));
    std::thread::sleep(rule.time * 2);
    assert_eq!(faults.release().iter().map(psn_of).collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
}
