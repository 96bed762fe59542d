//! Long SENDs from memory that peers do not map. The receiver copies the payload directly to the
//! final place.
use crate::cases;
use crate::rig::{ALL, Kind, Shape, pattern};
use crate::talk::Pair;
use adverb_device::engine::{SendOp, Sge, WcStatus};

cases!(
    long_messages_from_private_memory,
    long_messages_from_private_memory_into_many_entries,
    long_messages_from_private_memory_to_a_shared_receive_queue,
    a_receive_that_is_too_short_for_a_long_message,
    private_memory_is_taken_back_behind_its_messages,
    private_memory_is_taken_back_under_its_messages,
);

/// Number of messages in flight at the same time.
const DEPTH: usize = 6;
const SIZES: [usize; 7] =
    [16_384, 65_536, 65_537, 131_072, 1_000_000, (1 << 20) + 65_537, (2 << 20) + 1];
const MOST: usize = DEPTH * SIZES[SIZES.len() - 1];

/// Checks the rig's answer: one completion for each seed, with `len` bytes.
fn received(answer: &str, seeds: std::ops::Range<u64>, len: usize) {
    let expected: Vec<_> = seeds.map(|seed| format!("Success/Recv/{seed}/{len}/0/0")).collect();
    assert_eq!(answer, expected.join(" "));
}

/// Sends [`DEPTH`] messages at the same time, from slices of one region to slices of another. Each
/// receive has `entries` scatter entries.
fn burst(
    p: &mut Pair,
    qp: usize,
    (from, to): (usize, usize),
    len: usize,
    entries: usize,
    seed: u64,
) {
    let seeds = seed..seed + DEPTH as u64;
    let whole: Vec<u8> = seeds.clone().flat_map(|seed| pattern(len, seed)).collect();
    p.a.regions[from].put(0, &whole);
    for (n, seed) in seeds.clone().enumerate() {
        // The last entry takes the remaining bytes.
        let (part, begin) = (len / entries, n * len);
        let mut order = format!("recv {qp} {seed}");
        for entry in 0..entries {
            let bytes = if entry + 1 == entries { len - entry * part } else { part };
            order += &format!(" {to} {} {bytes}", begin + entry * part);
        }
        p.b.ask(&order);
    }
    for (n, seed) in seeds.clone().enumerate() {
        p.a.send(qp, seed, SendOp::Send, &[p.a.regions[from].sge(n * len, len)]);
    }
    let done = p.a.wait(DEPTH);
    assert!(done.iter().all(|c| c.status == WcStatus::Success), "{done:?}");
    received(&p.b.ask(&format!("wait {DEPTH}")), seeds.clone(), len);
    for (n, seed) in seeds.enumerate() {
        assert!(p.b.same(to, n * len, len, seed), "message {n} of {len} bytes");
    }
}

fn long_messages_from_private_memory(p: &mut Pair) {
    let qp = p.rc();
    let from = [Kind::Private, Kind::OnDemand].map(|kind| p.a.region(kind, MOST, ALL, 0));
    let to = [Kind::Private, Kind::Buffer].map(|kind| p.b.region(kind, MOST, ALL, 0).0);
    let mut seed = 1000;
    for len in SIZES {
        for way in [(from[0], to[0]), (from[0], to[1]), (from[1], to[0])] {
            burst(p, qp, way, len, 1, seed);
            seed += DEPTH as u64;
        }
    }
    p.wants.tx_ring = true;
}

fn long_messages_from_private_memory_into_many_entries(p: &mut Pair) {
    let qp = p.rc();
    let from = p.a.region(Kind::Private, MOST, ALL, 0);
    let (to, _) = p.b.region(Kind::Private, MOST, ALL, 0);
    for (n, len) in SIZES.into_iter().enumerate() {
        burst(p, qp, (from, to), len, 2 + n % 3, 1000 + n as u64 * 100);
    }
    p.wants.tx_ring = true;
}

fn long_messages_from_private_memory_to_a_shared_receive_queue(p: &mut Pair) {
    let qp = p.connect(Shape::default(), Shape { srq: true, ..Shape::default() });
    let from = p.a.region(Kind::Private, MOST, ALL, 0);
    let (to, _) = p.b.region(Kind::Private, MOST, ALL, 0);
    for (n, len) in SIZES.into_iter().enumerate() {
        burst(p, qp, (from, to), len, 1 + n % 2, 1000 + n as u64 * 100);
    }
    p.wants.tx_ring = true;
}

fn a_receive_that_is_too_short_for_a_long_message(p: &mut Pair) {
    const LEN: usize = 600_000;
    let from = p.a.region(Kind::Private, LEN, ALL, 0);
    let (to, _) = p.b.region(Kind::Private, LEN, ALL, 0);
    p.a.regions[from].put(0, &pattern(LEN, 3));
    for room in [LEN - 1, 300_000, 65_536, 100] {
        let qp = p.rc();
        p.b.ask(&format!("fill {to} 0 {LEN} 9"));
        p.b.ask(&format!("recv {qp} 1 {to} 0 {room}"));
        p.a.send(qp, 2, SendOp::Send, &[p.a.regions[from].sge(0, LEN)]);
        let done = p.a.wait(1).remove(0);
        assert_eq!(done.status, WcStatus::RemInvReqErr);
        p.note("too short", &done);
        assert!(p.b.ask("wait 1").starts_with("LocLenErr/Recv/1/"));
        // The memory behind the receive must not change.
        assert_eq!(p.b.ask(&format!("tail {to} {room} {LEN} 9")), "true", "behind {room} bytes");
    }
    p.wants.tx_ring = true;
}

/// After the send of a message is complete, the message has arrived whole. The sender may then
/// change the memory.
fn private_memory_is_taken_back_behind_its_messages(p: &mut Pair) {
    const LEN: usize = 700_001;
    let qp = p.rc();
    let (to, _) = p.b.region(Kind::Private, LEN * DEPTH, ALL, 0);
    for round in 0..20_u64 {
        let from = p.a.region(Kind::Private, LEN * DEPTH, ALL, 0);
        let seeds = round * 100..round * 100 + DEPTH as u64;
        let whole: Vec<u8> = seeds.clone().flat_map(|seed| pattern(LEN, seed)).collect();
        p.a.regions[from].put(0, &whole);
        for (n, seed) in seeds.clone().enumerate() {
            p.b.ask(&format!("recv {qp} {seed} {to} {} {LEN}", n * LEN));
        }
        // The peer polls while this end deregisters the region.
        p.b.order(&format!("wait {DEPTH}"));
        let sges: Vec<Sge> = (0..DEPTH).map(|n| p.a.regions[from].sge(n * LEN, LEN)).collect();
        for (sge, seed) in sges.iter().zip(seeds.clone()) {
            p.a.send(qp, seed, SendOp::Send, std::slice::from_ref(sge));
        }
        let done = p.a.wait(DEPTH);
        p.a.regions[from].dereg();
        p.a.regions[from].put(0, &vec![0xee; LEN * DEPTH]);
        assert!(done.iter().all(|c| c.status == WcStatus::Success), "{done:?}");
        let answer = p.b.answer();
        received(&answer, seeds.clone(), LEN);
        for (n, seed) in seeds.enumerate() {
            assert!(p.b.same(to, n * LEN, LEN, seed), "message {n} of round {round}");
        }
    }
    p.wants.tx_ring = true;
}

/// A region is deregistered at any moment while its message is in flight. The message arrives with
/// the original bytes, or not at all.
fn private_memory_is_taken_back_under_its_messages(p: &mut Pair) {
    const LEN: usize = 3_000_001;
    let (to, _) = p.b.region(Kind::Private, LEN, ALL, 0);
    let mut failed = Vec::new();
    for round in 0..40_u64 {
        let qp = p.rc();
        let from = p.a.region(Kind::Private, LEN, ALL, 0);
        p.a.regions[from].put(0, &pattern(LEN, round));
        p.b.ask(&format!("recv {qp} {round} {to} 0 {LEN}"));
        p.a.send(qp, round, SendOp::Send, &[p.a.regions[from].sge(0, LEN)]);
        (0..round * 200).for_each(|_| std::hint::spin_loop());
        p.a.regions[from].dereg();
        p.a.regions[from].put(0, &vec![0xee; LEN]);
        let status = p.a.wait(1)[0].status;
        if status == WcStatus::Success {
            // A message may have arrived although the send failed.
            let answer = loop {
                let answer = p.b.ask("wait 1");
                match failed
                    .iter()
                    .any(|round| answer.starts_with(&format!("Success/Recv/{round}/")))
                {
                    true => {}
                    false => break answer,
                }
            };
            received(&answer, round..round + 1, LEN);
            assert!(p.b.same(to, 0, LEN, round), "round {round}: the message is not what was sent");
        } else {
            assert_eq!(status, WcStatus::LocProtErr, "round {round}");
            failed.push(round);
        }
    }
    p.wants.tx_ring = true;
}
