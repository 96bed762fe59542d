//! Runs of packets from a hostile peer, against a whole node.
//!
//! Two nodes in virtual time have equal queue pairs, memory and requests of the program. One node
//! gets the packets of an input in runs, as the kernel joins them. The other node gets each packet
//! as a run of one. An input also posts requests and receives, lets time pass, and renews queue
//! pairs and keys. Conditions at the end (`twin::Seen`):
//!
//! - Completions, states, counters and deadlines of both nodes are equal. So is their memory, where
//!   bytes without a writable key have not changed.
//! - Both nodes have sent the same packets, byte for byte, ACKs included. A node answers after all
//!   packets of a receive, and both nodes get the same packets in one receive. So ACKs coalesce
//!   alike.
//! - Both nodes have looked at the clock equally often.
use crate::input::Input;
use adverb_engine::wr::Remote;
use adverb_engine::{PathMtu, QpState, SendOp, Time};
use adverb_link::Proof;
use adverb_wire::Psn;
use packet::Known;
use std::time::Duration;
use twin::{OWN, PEER, Run, Setup, TYPES, Twin};

mod packet;
mod twin;

struct Pair {
    twins: [Twin; 2],
    known: Known,
    now: Time,
    posts: u64,
}

/// The first bytes choose the attributes. Each step takes a byte, and further bytes as needed.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let setup = Setup {
        mtu: input.pick(&[PathMtu::Mtu256, PathMtu::Mtu1024]),
        psn: input.pick(&[0, 0x7f_fff8, 0xff_fff8]),
        incoming_reads: input.below(4) as u8,
    };
    let twins = [true, false].map(|in_runs| Twin::new(in_runs, setup));
    let known = Known {
        mtu: setup.mtu.bytes(),
        srqn: twins[0].srqn(),
        qpns: std::array::from_fn(|at| twins[0].qps[at].number()),
        requests: [Psn::new(setup.psn); TYPES.len()],
        answers: [Psn::new(setup.psn); TYPES.len()],
    };
    let mut pair = Pair { twins, known, now: Time(1_000_000), posts: 0 };
    while !input.is_empty() {
        pair.step(&mut input);
    }
    pair.receive();
    // Packets that wait for a receive are given up.
    pair.pass(Duration::from_millis(200));
    let [in_runs, alone] = pair.twins.each_ref().map(Twin::seen);
    assert_eq!(in_runs, alone, "packets in runs have another effect than the same packets alone");
}

impl Pair {
    fn step(&mut self, input: &mut Input<'_>) {
        let choice = input.u8();
        let more = choice >> 4;
        match choice & 15 {
            0..8 => {
                self.arrive(input);
                if more < 12 {
                    self.receive();
                }
            }
            8..10 => {
                let (offset, length) = (u64::from(input.u8()) * 16, u32::from(input.u8()) * 16);
                for at in (0..TYPES.len()).cycle().take(usize::from(more) * 2) {
                    self.posts += 1;
                    self.both(|twin, id| twin.post_recv(at, id, offset, length));
                }
            }
            10..12 => self.send(input),
            12 => self.pass(Duration::from_micros(u64::from(input.u16()))),
            13 => {
                let next = self.both(|twin, _| twin.sim.deadline());
                let next = next.unwrap_or_default();
                self.pass(next.since(self.now).min(Duration::from_secs(4)));
            }
            _ if more < 2 => self.twins.iter_mut().for_each(Twin::renew_open),
            _ => {
                for at in 0..TYPES.len() {
                    let is_broken = self.both(|twin, _| twin.qps[at].state() != QpState::Rts);
                    if is_broken || at == usize::from(more) {
                        self.twins.iter().for_each(|twin| twin.connect(at));
                    }
                }
                self.look();
            }
        }
    }

    /// Does the same in both nodes, with the same result.
    fn both<T: PartialEq + std::fmt::Debug>(&self, f: impl Fn(&Twin, u64) -> T) -> T {
        let [a, b] = self.twins.each_ref().map(|twin| f(twin, self.posts));
        assert_eq!(a, b, "the nodes differ");
        a
    }

    fn arrive(&mut self, input: &mut Input<'_>) {
        let common = input.u8();
        let drafts = self.known.run(input);
        for twin in &self.twins {
            let key = |name| twin.key(name);
            twin.arrive(Run {
                src: if common >= 0xf0 { OWN } else { PEER },
                traffic_class: if common & 0x18 == 0x18 { 3 } else { 0 },
                proof: match common & 7 {
                    ..5 => Proof::Wire,
                    5 | 6 => Proof::Process,
                    _ => Proof::Relayed,
                },
                packets: drafts.iter().map(|draft| draft.bytes(key)).collect(),
            });
        }
    }

    /// Both nodes receive what has arrived.
    fn receive(&mut self) {
        self.both(|twin, _| twin.sim.node().progress());
        self.look();
    }

    /// The peer learns which PSNs come next.
    fn look(&mut self) {
        for (at, qp) in self.twins[0].qps.iter().enumerate() {
            let inside = qp.inside();
            self.known.requests[at] = inside.expected;
            self.known.answers[at] = inside.unacknowledged[0];
        }
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let at = input.pick(&[0, 0, 0, 1, 1, 1, 2, 3]);
        let remote = Remote { va: 0x9000, rkey: 0x5678 };
        let op = input.pick(&[
            None,
            Some(SendOp::Send),
            Some(SendOp::Write(remote)),
            Some(SendOp::Read(remote)),
            Some(SendOp::FetchAdd { remote, add: 3 }),
        ]);
        let atomic = matches!(op, Some(SendOp::FetchAdd { .. }));
        let (offset, length) = (u64::from(input.u8()) * 8, u32::from(input.u8()) * 8);
        let length = if atomic { 8 } else { length };
        self.posts += 1;
        self.both(|twin, id| twin.post_send(at, id, op, offset, length));
    }

    /// Time passes, and the background threads do their work.
    fn pass(&mut self, by: Duration) {
        self.now = self.now + by;
        for twin in &mut self.twins {
            twin.sim.advance(self.now);
            twin.sim.turn();
        }
        self.look();
    }
}
