//! Whole SENDs without packets: certain receives, and the handling of messages.
use super::harness::*;
use crate::keys::PagedMemory;
use crate::wr::RecvWr;
use crate::*;
use adverb_wire::{Bth, Headers, ImmDt, Opcode, Operation, Psn, Transport};
use std::vec::Vec;

fn rc() -> Pair {
    Pair::new(Setup::new(QpType::Rc))
}

fn certain(p: &Pair, receive: u64) -> Option<u32> {
    p.sides[1].qp.certain_receive(None, &p.sides[1].keys, receive)
}

fn take(p: &mut Pair, receive: u32, immediate: Option<u32>, payload: &[u8]) -> bool {
    let operation = if immediate.is_some() { Operation::SendOnlyImm } else { Operation::SendOnly };
    let opcode = Opcode::new(Transport::Rc, operation).unwrap();
    let bth = Bth { solicited: true, ..Bth::new(opcode, QPN[1], Psn::ZERO) };
    let packet = Packet {
        src: Gid::default(),
        dst: Gid::default(),
        traffic_class: 0,
        hop_limit: 0,
        mtu: None,
        headers: Headers { imm: immediate.map(ImmDt), ..Headers::new(bth) },
        payload,
    };
    let s = &mut p.sides[1];
    let memory = PagedMemory { keys: &s.keys, memory: &s.arena };
    let mut env = Env {
        clock: &p.now,
        keys: &s.keys,
        memory: &memory,
        srq: &mut s.srq,
        effects: &mut s.effects,
    };
    let next = s.qp.receives_taken(None);
    let taken = s.qp.take_message(&mut env, (receive, next), &packet);
    s.settle();
    taken
}

/// Like a host: places usual messages itself, and gives all others to the engine.
fn land(p: &mut Pair, receive: u32, immediate: Option<u32>, payload: &[u8]) -> Option<Completion> {
    let s = &mut p.sides[1];
    let to = s.qp.landing(None, &s.keys, receive, payload.len())?;
    Memory::write(&s.arena, to, payload).unwrap();
    let wr_id = s.qp.take_landed()?;
    Some(s.qp.landed(wr_id, (WcOpcode::Recv, payload.len() as u32), immediate, true))
}

fn statuses(completions: &[Completion]) -> Vec<(u64, WcStatus)> {
    completions.iter().map(|c| (c.wr_id, c.status)).collect()
}

#[test]
fn receives_of_one_good_entry_or_none_are_certain() {
    let mut p = rc();
    assert_eq!(certain(&p, 0), None, "none is posted");
    p.recv(1, 1, 0, 100);
    let s = &mut p.sides[1];
    let (good, two) = (s.sge(0, 50), [s.sge(0, 10), s.sge(10, 10)]);
    let bad = wr::Sge { lkey: good.lkey ^ 0x100, ..good };
    let outside = wr::Sge { addr: good.addr - 1, ..good };
    for sges in [&two[..], &[bad], &[outside], &[], &[good]] {
        s.qp.post_recv(&RecvWr { wr_id: 2, sges }, &mut s.effects).unwrap();
    }
    let all: Vec<_> = (0..7).map(|receive| certain(&p, receive)).collect();
    assert_eq!(all, [Some(100), None, None, None, Some(0), Some(50), None]);

    p.sides[1].qp.hide_receives(true);
    assert_eq!(certain(&p, 0), None, "a fault hides them");
    p.sides[1].qp.hide_receives(false);
    let key = p.sides[1].key;
    p.sides[1].keys.deregister(key).unwrap();
    assert_eq!(certain(&p, 0), None, "the key is gone");
    let mut p = Pair::new(Setup { uses_srq: true, ..Setup::new(QpType::Rc) });
    p.recv(1, 1, 0, 100);
    assert_eq!(certain(&p, 0), None, "it is another queue's");
}

#[test]
fn a_message_is_placed_and_completes_its_receive() {
    let mut p = rc();
    for id in 0..3 {
        p.recv(1, id, id as usize * 100, 100);
    }
    assert!(take(&mut p, 0, None, b"first"));
    assert!(take(&mut p, 1, Some(0x1234), b""));
    assert_eq!(&p.sides[1].arena.bytes.borrow()[..5], b"first");
    let done = p.sides[1].recvs();
    let seen: Vec<_> = done.iter().map(|c| (c.wr_id, c.byte_len, c.imm, c.solicited)).collect();
    assert_eq!(seen, [(0, 5, 0, true), (1, 0, 0x1234, true)]);
    assert!(
        done[1].flags.contains(WcFlags::WITH_IMM) && !done[0].flags.contains(WcFlags::WITH_IMM)
    );
    assert!(!p.sides[1].qp.wants_output(), "nobody waits for an answer");
    // Packets follow messages, and messages follow packets.
    p.post(0, 9, wr::SendOp::Send, 0, 10);
    p.run();
    assert_eq!(statuses(&p.sides[0].sends()), [(9, WcStatus::Success)]);
    assert_eq!(statuses(&p.sides[1].recvs()), [(2, WcStatus::Success)]);
    assert_eq!(p.sides[1].qp.receives_taken(None), 3);
    p.recv(1, 3, 0, 100);
    assert!(take(&mut p, 3, None, b"more"));
}

#[test]
fn a_message_for_another_receive_or_state_is_dropped() {
    let mut p = rc();
    p.recv(1, 0, 0, 100);
    p.recv(1, 1, 0, 100);
    for receive in [1, 2, u32::MAX] {
        assert!(!take(&mut p, receive, None, b"x"));
    }
    assert_eq!(p.sides[1].qp.counters().dropped(qp::DropReason::Sequence), 3);
    assert!(take(&mut p, 0, None, b"x"));
    assert!(!take(&mut p, 0, None, b"x"), "it was taken");
    // Within a message of packets.
    p.recv(1, 2, 0, 3000);
    p.post(0, 9, wr::SendOp::Send, 0, 90);
    p.run();
    p.post(0, 9, wr::SendOp::Send, 0, 3000);
    p.pump_some(0, 1);
    p.deliver();
    assert!(!take(&mut p, 3, None, b"x"));
    p.step_to(1, QpState::Reset);
    assert!(!take(&mut p, 2, None, b"x"));
    // Receive numbers continue after a RESET, so that an old message finds no receive of the new
    // connection.
    for state in [QpState::Init, QpState::Rtr] {
        p.step_to(1, state);
    }
    p.recv(1, 7, 0, 100);
    let next = p.sides[1].qp.receives_taken(None) as u32;
    assert!(next >= 3, "{next}");
    p.sides[1].events.clear();
    assert!(take(&mut p, next, None, b"x"));
    assert_eq!(p.sides[1].events, [QpEvent::CommEst]);
}

#[test]
fn a_message_that_lies_ends_its_own_connection() {
    let mut p = rc();
    p.recv(1, 0, 0, 10);
    p.recv(1, 1, 0, 10);
    assert!(take(&mut p, 0, None, &[1; 11]));
    assert_eq!(
        statuses(&p.sides[1].recvs()),
        [(0, WcStatus::LocLenErr), (1, WcStatus::WrFlushErr)]
    );
    assert_eq!(p.sides[1].qp.state(), QpState::Err);
    // Where no receive waits at all.
    let mut p = rc();
    assert!(take(&mut p, 0, None, b"x"));
    assert_eq!(p.sides[1].qp.state(), QpState::Err);
}

#[test]
fn a_message_that_the_host_places_completes_as_one_that_the_engine_takes() {
    for immediate in [None, Some(0x1234)] {
        let (mut by_host, mut by_engine) = (rc(), rc());
        for p in [&mut by_host, &mut by_engine] {
            p.recv(1, 7, 100, 50);
        }
        let landed = land(&mut by_host, 0, immediate, b"message").unwrap();
        assert!(take(&mut by_engine, 0, immediate, b"message"));
        let taken = by_engine.sides[1].recvs().remove(0);
        let seen = |c: &Completion| {
            (c.wr_id, c.status, c.opcode, c.byte_len, c.imm, c.flags, c.solicited, c.qpn)
        };
        assert_eq!(seen(&landed), seen(&taken));
        let bytes = |p: &Pair| p.sides[1].arena.bytes.borrow().clone();
        assert_eq!(bytes(&by_host), bytes(&by_engine));
        let counted =
            |p: &Pair| (p.sides[1].qp.counters().executed, p.sides[1].qp.receives_taken(None));
        assert_eq!(counted(&by_host), counted(&by_engine));
    }
}

#[test]
fn what_is_unusual_about_a_message_does_not_land() {
    let mut p = rc();
    assert!(land(&mut p, 0, None, b"x").is_none(), "no receive");
    p.recv(1, 1, 0, 4);
    assert!(land(&mut p, 1, None, b"x").is_none(), "another receive");
    assert!(land(&mut p, 0, None, b"12345").is_none(), "longer than the receive");
    p.sides[1].qp.hide_receives(true);
    assert!(land(&mut p, 0, None, b"x").is_none(), "the receive is hidden");
    p.sides[1].qp.hide_receives(false);
    let key = p.sides[1].key;
    p.sides[1].keys.deregister(key).unwrap();
    assert!(land(&mut p, 0, None, b"x").is_none(), "the key is gone");
    assert_eq!(p.sides[1].qp.receives_posted(), 1);

    // The first packet or message in RTR raises an event once.
    let mut p = Pair::new(Setup::new(QpType::Rc));
    for state in [QpState::Reset, QpState::Init] {
        p.step_to(1, state);
    }
    p.recv(1, 1, 0, 4);
    assert!(land(&mut p, 0, None, b"x").is_none(), "INIT");
    p.step_to(1, QpState::Rtr);
    let next = p.sides[1].qp.receives_taken(None) as u32;
    assert!(land(&mut p, next, None, b"x").is_none(), "RTR, and nothing has come");
    assert!(take(&mut p, next, None, b"x"));
    p.recv(1, 2, 0, 4);
    assert!(land(&mut p, next + 1, None, b"x").is_some());
    p.recv(1, 3, 0, 4);
    p.step_to(1, QpState::Err);
    assert!(land(&mut p, next + 2, None, b"x").is_none(), "ERR");
}
