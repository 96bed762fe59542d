//! Order within a queue pair. The test runs random chains of requests and compares the result with
//! a model that performs the requests in order.
use crate::cases;
use crate::rig::{ALL, KINDS, Kind, Shape, request};
use crate::talk::Pair;
use adverb_device::engine::wr::Remote;
use adverb_device::engine::{SendFlags, SendOp, Sge, WcStatus};

cases!(random_chains, a_write_after_a_send_comes_after_it, what_a_sender_completed_has_come);

/// Number of words at each end.
const WORDS: usize = 8;

/// A generator of pseudorandom numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % below
    }
}

/// The expected words at both ends after each request.
#[derive(Default)]
struct Model {
    here: [u64; WORDS],
    there: [u64; WORDS],
}

/// Chooses a random request between the local word `mine` and the remote word `theirs`, and
/// performs the request on the model. The last value says whether the request consumes a receive.
fn next(dice: &mut Dice, model: &mut Model, at: Remote) -> (SendOp, usize, usize, bool) {
    let (mine, theirs) = (dice.roll(WORDS), dice.roll(WORDS));
    let remote = Remote { va: at.va + theirs as u64 * 8, ..at };
    let (h, t) = (&mut model.here[mine], &mut model.there[theirs]);
    let old = *t;
    let op = match dice.roll(8) {
        0 => SendOp::Send,
        1 => SendOp::SendImm(5),
        2 => SendOp::WriteImm(remote, 5),
        3 => SendOp::AtomicWrite(remote),
        4 => SendOp::Read(remote),
        5 => SendOp::FetchAdd { remote, add: 1 + dice.roll(99) as u64 },
        6 => SendOp::CompareSwap {
            remote,
            compare: if dice.roll(2) == 0 { old } else { 1 },
            swap: 7,
        },
        _ => SendOp::Write(remote),
    };
    match op {
        SendOp::Read(_) => *h = old,
        SendOp::FetchAdd { add, .. } => (*h, *t) = (old, old.wrapping_add(add)),
        SendOp::CompareSwap { compare, swap, .. } => {
            (*h, *t) = (old, if old == compare { swap } else { old });
        }
        _ => *t = *h,
    }
    (op, mine, theirs, matches!(op, SendOp::Send | SendOp::SendImm(_) | SendOp::WriteImm(..)))
}

pub fn random_chains(p: &mut Pair) {
    const CHAINS: usize = 120;
    let qp = p.rc();
    let mine = p.a.region(Kind::Buffer, WORDS * 8, ALL, 0);
    for (kind, seed) in KINDS.into_iter().zip([11, 12, 13]) {
        let (to, at) = p.b.region(kind, WORDS * 8, ALL, 0);
        let (mut dice, mut model) = (Dice(0x9e37_79b9 * seed), Model::default());
        for n in 0..WORDS {
            model.here[n] = (seed << 32) + n as u64;
            model.there[n] = n as u64;
            p.a.regions[mine].put(n * 8, &model.here[n].to_ne_bytes());
            p.b.ask(&format!("put {to} {} {n}", n * 8));
        }
        for chain in 0..CHAINS {
            let len = 1 + dice.roll(20);
            let (mut ops, mut receives) = (Vec::new(), 0);
            let (mut into, mut from) = ([false; WORDS], [false; WORDS]);
            for _ in 0..len {
                let (op, mine, theirs, takes) = next(&mut dice, &mut model, at);
                if takes {
                    p.b.ask(&format!("recv {qp} 1 {to} {} 8", theirs * 8));
                    receives += 1;
                }
                // Only a fence keeps later requests behind READs and atomics (IBTA table 76).
                let fence =
                    if into[mine] || from[theirs] { SendFlags::FENCE } else { SendFlags::empty() };
                if brings(&op) {
                    (into[mine], from[theirs]) = (true, true);
                }
                ops.push((op, mine, fence));
            }
            let sges: Vec<[Sge; 1]> =
                ops.iter().map(|(_, at, _)| [p.a.regions[mine].sge(at * 8, 8)]).collect();
            let requests: Vec<_> = ops
                .iter()
                .zip(&sges)
                .enumerate()
                .map(|(n, ((op, _, fence), sge))| {
                    request(n as u64, SendFlags::SIGNALED | *fence, *op, sge)
                })
                .collect();
            p.a.post(qp, &requests);
            let done = p.a.wait(len);
            assert!(done.iter().all(|c| c.status == WcStatus::Success), "{done:?}");
            assert!(done.iter().map(|c| c.wr_id).eq(0..len as u64), "completions out of order");
            p.b.ask(&format!("wait {receives}"));
            let here: Vec<u64> = (0..WORDS).map(|n| p.a.regions[mine].word(n * 8)).collect();
            assert_eq!(here, model.here, "{kind:?} chain {chain}: {ops:?}");
            for n in 0..WORDS {
                assert_eq!(
                    p.b.word(to, n * 8),
                    model.there[n],
                    "{kind:?} chain {chain} word {n}: {ops:?}"
                );
            }
        }
    }
    (p.wants.one_sided, p.wants.tx_ring) = (true, true);
}

fn brings(op: &SendOp) -> bool {
    matches!(op, SendOp::Read(_) | SendOp::FetchAdd { .. } | SendOp::CompareSwap { .. })
}

/// If the peer sees the word of a WRITE that follows a SEND, the bytes of the SEND are there.
fn a_write_after_a_send_comes_after_it(p: &mut Pair) {
    let qp = p.rc();
    let mine = p.a.region(Kind::Buffer, 64, ALL, 0);
    for kind in KINDS {
        let (to, at) = p.b.region(kind, 64, ALL, 0);
        for n in 1..=100u64 {
            p.b.ask(&format!("recv {qp} {n} {to} 0 8"));
            p.b.order(&format!("spin {to} 8 {n}"));
            p.a.regions[mine].put(0, &(n * 7).to_ne_bytes());
            p.a.regions[mine].put(8, &n.to_ne_bytes());
            let (first, second) = ([p.a.regions[mine].sge(0, 8)], [p.a.regions[mine].sge(8, 8)]);
            let flag = Remote { va: at.va + 8, ..at };
            p.a.post(
                qp,
                &[
                    request(1, SendFlags::empty(), SendOp::Send, &first),
                    request(2, SendFlags::SIGNALED, SendOp::Write(flag), &second),
                ],
            );
            assert_eq!(p.b.answer(), n.to_string());
            assert_eq!(p.b.word(to, 0), n * 7, "{kind:?}: the flag came before the message");
            assert_eq!(p.a.wait(1)[0].wr_id, 2);
            assert!(p.b.ask("wait 1").starts_with("Success"));
        }
    }
    p.wants.tx_ring = true;
}

/// A receiver that ends its queue pair has received every message that the sender completed.
fn what_a_sender_completed_has_come(p: &mut Pair) {
    const RECEIVES: usize = 250;
    let mine = p.a.region(Kind::Buffer, 64, ALL, 0);
    let (to, _) = p.b.region(Kind::Buffer, 64, ALL, 0);
    let sges = [p.a.regions[mine].sge(0, 8)];
    let mut completed = 0;
    for round in 0..60 {
        // These limits are low, so that the request that is sent after the end of the receiver
        // fails soon.
        let shape = Shape { timeout: 8, retry: 2, ..Shape::default() };
        let qp = p.connect(shape, shape);
        p.b.ask(&format!("recvs {qp} {RECEIVES} {to} 8"));
        p.b.order(&format!("cut {qp} {RECEIVES} {}", 1 + round));
        let sent = (0..RECEIVES as u64)
            .take_while(|n| {
                p.a.send(qp, *n, SendOp::Send, &sges);
                p.a.wait(1)[0].status == WcStatus::Success
            })
            .count();
        let received: usize = p.b.answer().parse().unwrap();
        // The acknowledgement of the last message may be lost when its queue pair ends.
        assert!(
            (sent..=sent + 1).contains(&received),
            "round {round}: {sent} sent, {received} received"
        );
        completed += sent;
    }
    assert!(completed > 60, "{completed} messages");
    p.wants.tx_ring = true;
}
