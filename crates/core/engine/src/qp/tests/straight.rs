//! Payloads that the host copies straight to where they go: which packets, and where to.
use super::harness::*;
use crate::wr::RecvWr;
use crate::*;
use adverb_wire::{Bth, Headers, Opcode, Operation, Psn, Transport};

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

fn place(p: &Pair, operation: Operation, len: u32) -> Option<Range> {
    let s = &p.sides[1];
    s.qp.straight_to(&s.keys, &headers(operation, s.qp.inside().expected), len)
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
fn it_goes_to_the_next_receive_and_on_within_an_entry() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    assert_eq!(place(&p, Operation::SendFirst, 8), None, "no receive is posted");
    let s = &mut p.sides[1];
    let entries = [s.sge(64, 100), s.sge(1000, 50)];
    s.qp.post_recv(&RecvWr { wr_id: 1, sges: &entries }, &mut s.effects).unwrap();
    let to = place(&p, Operation::SendFirst, 100).map(|to| (to.addr, to.len));
    assert_eq!(to, Some((BASE + 64, 100)));
    assert_eq!(place(&p, Operation::SendFirst, 101), None, "not in one entry");
    assert_eq!(place(&p, Operation::SendMiddle, 8), None, "no message has begun");
    p.sides[1].keys.deregister(entries[0].lkey).unwrap();
    assert_eq!(place(&p, Operation::SendFirst, 100), None, "the key is gone");
}

#[test]
fn a_message_under_way_goes_on_behind_what_came() {
    let mut p = Pair::new(Setup::new(QpType::Rc));
    p.recv(1, 1, 64, 3000);
    p.post(0, 1, SendOp::Send, 0, 3000);
    p.pump(0);
    assert!(p.deliver(), "the first packet");
    assert!(takes(&p, Operation::SendMiddle, 0));
    let to = place(&p, Operation::SendMiddle, 3000 - 1024).map(|to| (to.addr, to.len));
    assert_eq!(to, Some((BASE + 64 + 1024, 3000 - 1024)));
    assert_eq!(place(&p, Operation::SendMiddle, 3000 - 1023), None, "more than there is room for");
    assert_eq!(place(&p, Operation::SendFirst, 8), None, "another message would be an error");
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
