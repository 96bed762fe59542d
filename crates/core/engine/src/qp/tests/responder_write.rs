//! RDMA WRITE on RC.
use super::responder_world::*;
use crate::types::{Access, QpState};
use crate::{Cause, QpEvent, WcFlags, WcOpcode, WcStatus};
use adverb_wire::{NakCode, Operation::*, Syndrome};

#[test]
fn packets_land_one_after_the_other_without_completion() {
    let mut w = World::rc();
    let data = pattern(600);
    w.give(&w.packet(WriteFirst, 0).reth(w.rkey, TARGET + 5, 600).data(&data[..MTU]));
    w.give(&w.packet(WriteMiddle, 1).data(&data[MTU..2 * MTU]));
    w.give(&w.packet(WriteLast, 2).data(&data[2 * MTU..]).ask_ack());
    assert_eq!(w.memory.slice(TARGET + 5, 600), data);
    assert!(w.completions().is_empty());
    let ack = w.one();
    assert_eq!((ack.psn(), ack.msn()), (2, 1));
}

#[test]
fn immediate_data_takes_a_receive_at_the_end() {
    let mut w = World::rc();
    let data = pattern(300);
    w.give(&w.packet(WriteFirst, 0).reth(w.rkey, TARGET, 300).data(&data[..MTU]));
    let last = w.packet(WriteLastImm, 1).data(&data[MTU..]).imm(7).solicited().ask_ack();
    w.give(&last);
    // Not ready: the last packet is not placed.
    let nak = w.one();
    assert_eq!((nak.psn(), nak.syndrome()), (1, Syndrome::RnrNak { timer: 14 }));
    assert_eq!(w.memory.writes.get(), 1);
    let id = w.recv(0, &[]);
    w.give(&last);
    let c = w.completion();
    assert_eq!((c.wr_id, c.opcode, c.byte_len), (id, WcOpcode::RecvRdmaWithImm, 300));
    assert_eq!((c.imm, c.flags, c.solicited), (7, WcFlags::WITH_IMM, true));
    assert_eq!(w.memory.slice(TARGET, 300), data);
    assert_eq!(w.one().msn(), 1);
}

#[test]
fn no_bytes_need_no_key() {
    let mut w = World::rc();
    w.give(&w.packet(WriteOnly, 0).reth(0xdead_beef, 0, 0).ask_ack());
    assert_eq!(w.one().syndrome(), Syndrome::ACK_NO_CREDITS);
}

#[test]
fn the_whole_range_is_checked_before_the_first_byte() {
    let mut w = World::rc();
    let va = TARGET + TARGET_LEN - 300;
    w.give(&w.packet(WriteFirst, 0).reth(w.rkey, va, 301).data(&[1; MTU]));
    assert_eq!(w.memory.writes.get(), 0);
    w.assert_refused(0, NakCode::RemoteAccess);
    let events = w.events();
    let [QpEvent::AccessErr(cause)] = &events[..] else { panic!("{events:?}") };
    assert!(matches!(**cause, Cause::OutOfBounds { .. }));
}

#[test]
fn keys_and_rights() {
    type Setup = fn(&mut World) -> u32;
    let setups: [Setup; 3] = [
        |w| w.rkey ^ 1,
        // The receive buffers have no remote right.
        |w| w.lkey,
        |w| {
            let region = crate::keys::Region { pd: SRQ_PD, ..*w.keys.region(w.rkey).unwrap() };
            w.keys.reregister(w.rkey, region).unwrap();
            w.rkey
        },
    ];
    for setup in setups {
        let mut w = World::rc();
        let rkey = setup(&mut w);
        let va = if rkey == w.lkey { BUFFERS } else { TARGET };
        w.give(&w.packet(WriteOnly, 0).reth(rkey, va, 8).data(&[1; 8]));
        assert_eq!(w.memory.writes.get(), 0);
        w.assert_refused(0, NakCode::RemoteAccess);
        assert!(matches!(w.events()[..], [QpEvent::AccessErr(_)]));
    }
    // The queue pair's rights are checked before any key.
    let mut w = World::rc();
    w.qp.attr.access = ALL - Access::REMOTE_WRITE;
    w.give(&w.packet(WriteOnly, 0).reth(w.rkey, TARGET, 8).data(&[1; 8]));
    assert_eq!(w.memory.writes.get(), 0);
    w.assert_refused(0, NakCode::InvalidRequest);
    assert!(
        matches!(&w.events()[..], [QpEvent::ReqErr(c)] if matches!(**c, Cause::QpAccessDenied { .. }))
    );
}

/// MEM-2: `ibv_modify_qp` took the right back.
#[test]
fn a_right_that_goes_away_inside_a_message_ends_it() {
    let mut w = World::rc();
    w.give(&w.packet(WriteFirst, 0).reth(w.rkey, TARGET, 600).data(&[1; MTU]));
    assert_eq!(w.memory.writes.get(), 1);
    w.qp.attr.access = ALL - Access::REMOTE_WRITE;
    w.give(&w.packet(WriteMiddle, 1).data(&[1; MTU]));
    assert_eq!(w.memory.writes.get(), 1);
    w.assert_refused(1, NakCode::InvalidRequest);
}

#[test]
fn a_region_that_goes_away_inside_a_message_ends_it() {
    let mut w = World::rc();
    w.give(&w.packet(WriteFirst, 0).reth(w.rkey, TARGET, 300).data(&[1; MTU]));
    w.keys.deregister(w.rkey).unwrap();
    w.give(&w.packet(WriteLast, 1).data(&[1; 44]));
    assert_eq!(w.memory.writes.get(), 1);
    w.assert_refused(1, NakCode::RemoteAccess);
}

#[test]
fn data_must_be_as_long_as_announced() {
    for (announced, op, len) in [(8, WriteOnly, 9), (8, WriteOnly, 7), (MTU, WriteFirst, MTU)] {
        let mut w = World::rc();
        w.give(&w.packet(op, 0).reth(w.rkey, TARGET, announced).data(&pattern(len)));
        assert_eq!(w.memory.writes.get(), 0);
        w.assert_refused(0, NakCode::InvalidRequest);
    }
    for (op, len) in [(WriteLast, 43), (WriteLast, 45), (WriteMiddle, MTU)] {
        let mut w = World::rc();
        w.give(&w.packet(WriteFirst, 0).reth(w.rkey, TARGET, 300).data(&[1; MTU]));
        w.give(&w.packet(op, 1).data(&pattern(len)));
        assert_eq!(w.memory.writes.get(), 1);
        w.assert_refused(1, NakCode::InvalidRequest);
        assert!(matches!(w.events()[..], [QpEvent::ReqErr(_)]));
    }
}

#[test]
fn unmapped_memory_takes_the_receive_along() {
    let mut w = World::rc();
    w.memory.hole.set(Some(TARGET + 3));
    let id = w.recv(0, &[]);
    w.give(&w.packet(WriteOnlyImm, 0).reth(w.rkey, TARGET, 8).data(&[1; 8]).imm(1));
    w.assert_refused(0, NakCode::RemoteOperational);
    let c = w.completion();
    assert_eq!((c.wr_id, c.status), (id, WcStatus::LocAccessErr));
}

/// The receive of the immediate data reports the refused WRITE (IBTA 11.6.2, local access error).
/// Receives come before keys (IBTA 9.7.4.1.4): without a receive the answer is RNR.
#[test]
fn a_wrong_key_takes_the_receive_of_the_immediate_data_along() {
    let bad =
        |w: &World| w.packet(WriteOnlyImm, 0).reth(w.rkey ^ 0x100, TARGET, 8).data(&[1; 8]).imm(1);
    let mut w = World::rc();
    w.give(&bad(&w));
    assert!(matches!(w.one().syndrome(), Syndrome::RnrNak { .. }));
    let mut w = World::rc();
    let id = w.recv(0, &[]);
    w.recv(0, &[]);
    w.give(&bad(&w));
    w.assert_refused(0, NakCode::RemoteAccess);
    let seen: std::vec::Vec<_> = w.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(seen, [(id, WcStatus::LocAccessErr), (id + 1, WcStatus::WrFlushErr)]);
    assert_eq!((w.events(), w.memory.writes.get()), (std::vec![], 0));
}

#[test]
fn a_duplicate_write_does_not_write() {
    let mut w = World::rc();
    let only = w.packet(WriteOnly, 0).reth(w.rkey, TARGET, 8).data(&[1; 8]);
    w.give(&only);
    w.silent();
    w.memory.set(TARGET, &[9; 8]);
    // Answered even without an ACK request, because the peer repeats only after a loss.
    w.give(&only);
    assert_eq!(w.one().psn(), 0);
    assert_eq!(w.memory.slice(TARGET, 8), [9; 8]);
}

#[test]
fn packets_of_strangers_change_nothing() {
    let mut w = World::rc();
    let only = w.packet(WriteOnly, 0).reth(w.rkey, TARGET, 8).data(&[1; 8]).ask_ack();
    w.give_from(&only, crate::types::Gid::from_ipv4([10, 0, 0, 3]));
    w.silent();
    assert_eq!(w.memory.writes.get(), 0);
    for state in [QpState::Reset, QpState::Init, QpState::Err] {
        w.qp.attr.state = state;
        w.give(&only);
    }
    w.silent();
    assert_eq!(w.memory.writes.get(), 0);
    assert_eq!(w.qp.counters().dropped_total(), 4);
}

#[test]
fn headers_that_do_not_fit_the_opcode_are_dropped() {
    let mut w = World::rc();
    w.give(&w.packet(WriteOnly, 0).data(&[1; 8]));
    w.give(&w.packet(SendOnly, 0).reth(w.rkey, TARGET, 8).data(&[1; 8]));
    w.silent();
    assert_eq!(w.qp.counters().dropped(crate::qp::DropReason::Malformed), 2);
    assert_eq!(w.qp.state(), QpState::Rts);
}
