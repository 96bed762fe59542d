//! Payloads that the host copies straight to their destination: which packets, and which
//! destinations.
use super::harness::*;
use crate::wr::RecvWr;
use crate::*;
use adverb_wire::{Bth, Headers, Opcode, Operation, Psn, Transport};
use std::vec::Vec;

fn headers(operation: Operation, psn: Psn) -> Headers {
    let opcode = Opcode::new(Transport::Rc, operation).unwrap();
    Headers::new(Bth::new(opcode, QPN[1], psn))
}

fn expected(p: &Pair) -> Psn {
    p.sides[1].qp.inside().expected
}

fn takes(p: &Pair, operation: Operation, ahead: u32) -> bool {
    p.sides[1].qp.takes_straight(&headers(operation, expected(p) + ahead))
}

/// Destinations of packets of these lengths, up to the first packet without a known destination.
fn course(p: &Pair, packets: &[(Operation, u32)]) -> Vec<(u64, u32)> {
    let s = &p.sides[1];
    let mut course = s.qp.course(&s.keys);
    let mut next = |(operation, len): &(Operation, u32)| {
        let to = course.next(&headers(*operation, expected(p)).bth, *len)?;
        Some((to.addr - BASE, to.len))
    };
    packets.iter().map_while(&mut next).collect()
}

#[test]
fn the_next_packet_of_a_send_is_taken_straight() {
    let p = Pair::new(Setup::new(QpType::Rc));
    use Operation as O;
    for operation in [O::SendFirst, O::SendOnly, O::SendMiddle, O::SendLastImm] {
        assert!(takes(&p, operation, 0), "{operation:?}");
        assert!(!takes(&p, operation, 1), "{operation:?} that comes early is kept");
        assert!(!takes(&p, operation, Psn::MASK), "{operation:?} that comes again");
    }
    for operation in [O::WriteOnly, O::WriteFirst, O::AtomicWrite, O::ReadRequest] {
        assert!(!takes(&p, operation, 0), "{operation:?}");
    }
}

#[test]
fn packets_go_to_the_next_receives_each_within_an_entry() {
    use Operation as O;
    let mut p = Pair::new(Setup::new(QpType::Rc));
    assert_eq!(course(&p, &[(O::SendOnly, 8)]), [], "no receive is posted");
    let s = &mut p.sides[1];
    let entries = [s.sge(64, 100), s.sge(1000, 50)];
    s.qp.post_recv(&RecvWr { wr_id: 1, sges: &entries }, &mut s.effects).unwrap();
    s.qp.post_recv(&RecvWr { wr_id: 2, sges: &entries[1..] }, &mut s.effects).unwrap();
    let two = [(O::SendFirst, 60), (O::SendMiddle, 40), (O::SendLast, 50), (O::SendOnly, 9)];
    assert_eq!(course(&p, &two), [(64, 60), (124, 40), (1000, 50), (1000, 9)]);
    assert_eq!(course(&p, &[two[0], two[3]]), [(64, 60)], "no message ends");
    assert_eq!(course(&p, &two[1..]), [], "no message has begun");
    assert_eq!(course(&p, &[(O::SendFirst, 101)]), [], "not in one entry");
    assert_eq!(course(&p, &[(O::SendFirst, 60), (O::SendMiddle, 41)]), [(64, 60)]);
    let three = [(O::SendOnly, 8), (O::SendOnly, 8), (O::SendOnly, 8)];
    assert_eq!(course(&p, &three), [(64, 8), (1000, 8)], "two are posted");
    assert_eq!(course(&p, &[(O::WriteOnlyImm, 8)]), [], "it goes elsewhere");
    p.sides[1].keys.deregister(entries[0].lkey).unwrap();
    assert_eq!(course(&p, &two), [], "the key is gone");
}

#[test]
fn a_message_under_way_goes_on_behind_what_arrived() {
    use Operation as O;
    let mut p = Pair::new(Setup::new(QpType::Rc));
    p.recv(1, 1, 64, 3000);
    p.recv(1, 2, 5000, 100);
    p.post(0, 1, SendOp::Send, 0, 3000);
    p.pump(0);
    assert!(p.deliver(), "the first packet");
    assert!(takes(&p, O::SendMiddle, 0));
    let rest = [(O::SendMiddle, 1024), (O::SendLast, 952), (O::SendOnly, 100)];
    assert_eq!(course(&p, &rest), [(1088, 1024), (2112, 952), (5000, 100)]);
    assert_eq!(course(&p, &[(O::SendLast, 3000 - 1023)]), [], "more than there is room for");
    assert_eq!(course(&p, &[(O::SendOnly, 8)]), [], "another message would be an error");
    p.run();
    assert_eq!(p.sides[1].recvs().len(), 1);
}

#[test]
fn other_queue_pairs_and_states_take_nothing_straight() {
    for qp_type in [QpType::Uc, QpType::Ud, QpType::XrcSend] {
        assert!(!takes(&Pair::new(Setup::new(qp_type)), Operation::SendOnly, 0), "{qp_type:?}");
    }
    let mut p = Pair::new(Setup::new(QpType::Rc));
    p.step_to(1, QpState::Err);
    assert!(!takes(&p, Operation::SendOnly, 0), "in ERR");
}
