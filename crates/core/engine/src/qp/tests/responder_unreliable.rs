//! UC and UD: drops instead of answers.
use super::responder_world::*;
use crate::qp::DropReason;
use crate::types::{Gid, QpState, QpType};
use crate::wr::Sge;
use crate::{Unfit, WcFlags, WcOpcode, WcStatus};
use adverb_wire::{Grh, Ipv4InGrh, Operation::*};

fn uc() -> World {
    World::new(QpType::Uc, false)
}

#[test]
fn uc_takes_messages_and_answers_nothing() {
    let mut w = uc();
    w.recv(0, &[300]);
    let data = pattern(300);
    w.give(&w.packet(SendFirst, 0).data(&data[..MTU]));
    w.give(&w.packet(SendLastImm, 1).data(&data[MTU..]).imm(9).ask_ack());
    let c = w.completion();
    assert_eq!((c.byte_len, c.imm, c.flags), (300, 9, WcFlags::WITH_IMM));
    assert_eq!(w.memory.slice(BUFFERS, 300), data);
    w.give(&w.packet(WriteOnly, 2).reth(w.rkey, TARGET, 8).data(&[5; 8]).ask_ack());
    assert_eq!(w.memory.slice(TARGET, 8), [5; 8]);
    w.silent();
}

#[test]
fn uc_gap_drops_the_message_and_keeps_its_receive() {
    let mut w = uc();
    let id = w.recv(0, &[800]);
    w.give(&w.packet(SendFirst, 0).data(&[1; MTU]));
    // Packet 1 is lost, so 2 and 3 are useless.
    w.give(&w.packet(SendMiddle, 2).data(&[2; MTU]));
    w.give(&w.packet(SendLast, 3).data(&[3; 8]));
    assert!(w.completions().is_empty());
    assert_eq!(w.qp.counters().dropped(DropReason::Sequence), 2);
    w.give(&w.packet(SendOnly, 4).data(&[4; 8]));
    let c = w.completion();
    assert_eq!((c.wr_id, c.byte_len), (id, 8));
    assert_eq!(w.memory.slice(BUFFERS, 8), [4; 8]);
}

#[test]
fn uc_new_message_replaces_one_without_tail() {
    let mut w = uc();
    w.recv(0, &[800]);
    w.give(&w.packet(SendFirst, 0).data(&[1; MTU]));
    w.give(&w.packet(SendOnly, 9).data(&[4; 8]));
    assert_eq!(w.completion().byte_len, 8);
    w.give(&w.packet(SendLast, 10).data(&[3; 8]));
    assert!(w.completions().is_empty());
}

#[test]
fn uc_refusals_are_silent() {
    let mut w = uc();
    w.give(&w.packet(SendOnly, 0).data(&[1; 8]));
    assert_eq!(w.qp.counters().dropped(DropReason::NoReceive), 1);
    let id = w.recv(0, &[4]);
    w.give(&w.packet(SendOnly, 1).data(&[1; 8]));
    assert_eq!(w.qp.counters().dropped(DropReason::RecvTooShort), 1);
    assert_eq!(w.effects.unfit.take(), Some(Unfit { message: 8, buffers: 4 }));
    w.give(&w.packet(WriteOnly, 2).reth(w.rkey ^ 1, TARGET, 8).data(&[1; 8]));
    w.give(&w.packet(WriteFirst, 3).reth(w.rkey, TARGET + TARGET_LEN - 8, 300).data(&[1; MTU]));
    w.give(&w.packet(WriteLast, 4).data(&[1; 44]));
    assert_eq!((w.memory.writes.get(), w.qp.state()), (0, QpState::Rts));
    w.give(&w.packet(SendOnly, 5).data(&[1; 4]));
    assert_eq!(w.completion().wr_id, id);
    w.silent();
}

#[test]
fn uc_bad_buffer_ends_the_queue_pair() {
    let mut w = uc();
    w.recv_sges(&[Sge { addr: BUFFERS, length: 8, lkey: 0xbad }]);
    w.give(&w.packet(SendOnly, 0).data(&[1; 8]));
    assert_eq!(w.completion().status, WcStatus::LocProtErr);
    assert_eq!(w.qp.state(), QpState::Err);
    w.silent();
}

#[test]
fn ud_writes_the_ipv4_header_before_the_payload() {
    let mut w = World::new(QpType::Ud, false);
    let id = w.recv(0, &[30, 100]);
    let data = pattern(21);
    w.give(&w.packet(SendOnlyImm, 0).data(&data).imm(3).solicited());
    let c = w.completion();
    assert_eq!((c.wr_id, c.byte_len, c.opcode, c.src_qpn), (id, 61, WcOpcode::Recv, PEER));
    assert_eq!((c.flags, c.imm, c.solicited), (WcFlags::GRH | WcFlags::WITH_IMM, 3, true));
    assert_eq!(w.memory.slice(BUFFERS + 40, 21), data);
    let ip = Ipv4InGrh {
        tos: 2,
        // IP 20, UDP 8, BTH 12, DETH 8, ImmDt 4, payload 21 with 3 of pad, ICRC 4.
        total_len: 80,
        id: 0,
        dont_fragment: true,
        ttl: 63,
        protocol: 17,
        src: [10, 0, 0, 2],
        dst: [10, 0, 0, 1],
    };
    assert_eq!(w.memory.slice(BUFFERS, 40), ip.to_bytes());
}

#[test]
fn ud_writes_the_ipv6_header_before_the_payload() {
    let mut w = World::new(QpType::Ud, false);
    w.recv(0, &[100]);
    let src = Gid([0xfe, 0x80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    w.give_from(&w.packet(SendOnly, 77).data(&[1; 8]), src);
    assert_eq!(w.completion().byte_len, 48);
    let grh = Grh {
        traffic_class: 2,
        flow_label: 0,
        payload_len: 8 + 12 + 8 + 8 + 4,
        next_header: 17,
        hop_limit: 63,
        sgid: src.0,
        dgid: [9; 16],
    };
    assert_eq!(w.memory.slice(BUFFERS, 40), grh.to_bytes());
}

#[test]
fn ud_drops_what_it_cannot_take() {
    let mut w = World::new(QpType::Ud, false);
    let only = w.packet(SendOnly, 0).data(&[1; 8]);
    w.give(&only);
    assert_eq!(w.qp.counters().dropped(DropReason::NoReceive), 1);
    let id = w.recv(0, &[48]);
    let mut wrong = only.clone();
    wrong.headers.deth.as_mut().unwrap().qkey ^= 1;
    w.give(&wrong);
    assert_eq!(w.qp.counters().dropped(DropReason::QKey), 1);
    // One byte too long for the buffer, and longer than the port's MTU.
    w.give(&w.packet(SendOnly, 0).data(&[1; 9]));
    assert_eq!(w.qp.counters().dropped(DropReason::RecvTooShort), 1);
    assert_eq!(w.effects.unfit.take(), Some(Unfit { message: 9, buffers: 48 }));
    w.give(&w.packet(SendOnly, 0).data(&[1; 1025]));
    assert_eq!(w.qp.counters().dropped(DropReason::Length), 1);
    assert_eq!(w.memory.writes.get(), 0);
    // The receive is still there.
    w.give(&only);
    assert_eq!(w.completion().wr_id, id);
    w.silent();
}

#[test]
fn ud_bad_buffer_writes_nothing() {
    let mut w = World::new(QpType::Ud, false);
    let lkey = w.lkey;
    w.recv_sges(&[
        Sge { addr: BUFFERS, length: 40, lkey },
        Sge { addr: BUFFERS + BUFFERS_LEN - 4, length: 8, lkey },
    ]);
    w.give(&w.packet(SendOnly, 0).data(&[1; 8]));
    assert_eq!(w.memory.writes.get(), 0);
    assert_eq!(w.completion().status, WcStatus::LocProtErr);
    assert_eq!(w.qp.state(), QpState::Err);
}
