//! SEND on RC and XRC: order, receives, lengths, ACKs, NAKs, duplicates.
use super::responder_world::*;
use crate::types::{Access, QpState, QpType};
use crate::wr::Sge;
use crate::{Cause, KeyOp, QpEvent, WcFlags, WcOpcode, WcStatus};
use adverb_wire::{NakCode, Operation::*, Syndrome};
use std::vec::Vec;

const ACK: Syndrome = Syndrome::ACK_NO_CREDITS;

/// First, middle, last of `data`.
fn three(w: &World, data: &[u8]) -> [Request; 3] {
    [
        w.packet(SendFirst, 0).data(&data[..MTU]),
        w.packet(SendMiddle, 1).data(&data[MTU..2 * MTU]),
        w.packet(SendLast, 2).data(&data[2 * MTU..]).ask_ack(),
    ]
}

#[test]
fn only_fills_a_receive_and_is_acknowledged() {
    let mut w = World::rc();
    let id = w.recv(16, &[100]);
    let data = pattern(77);
    w.give(&w.packet(SendOnlyImm, 0).data(&data).imm(0xaabb_ccdd).solicited().ask_ack());
    let c = w.completion();
    assert_eq!(
        (c.wr_id, c.status, c.opcode, c.byte_len),
        (id, WcStatus::Success, WcOpcode::Recv, 77)
    );
    assert_eq!((c.imm, c.flags, c.solicited), (0xaabb_ccdd, WcFlags::WITH_IMM, true));
    assert_eq!(w.memory.slice(BUFFERS + 16, 77), data);
    let ack = w.one();
    assert_eq!((ack.brief(), ack.syndrome(), ack.msn()), ((0, Acknowledge), ACK, 1));
}

#[test]
fn empty_message_takes_a_receive_without_buffers() {
    let mut w = World::rc();
    w.recv(0, &[]);
    w.give(&w.packet(SendOnly, 0));
    let c = w.completion();
    assert_eq!((c.byte_len, c.solicited, c.flags), (0, false, WcFlags::empty()));
    // No request asked for an ACK.
    w.silent();
}

#[test]
fn a_message_spans_packets_and_buffers() {
    let mut w = World::rc();
    // Boundaries inside packets, on packets, empty entries; five entries do not fit the short list.
    w.recv(0, &[100, 0, 156, 300, 200]);
    let data = pattern(600);
    for p in three(&w, &data) {
        assert!(w.effects.completions.is_empty());
        w.give(&p);
    }
    assert_eq!(w.completion().byte_len, 600);
    assert_eq!(w.memory.slice(BUFFERS, 600), data);
    // One write for each piece: 100 | 156 | 256 | 44+44.
    assert_eq!(w.memory.writes.get(), 5);
    let ack = w.one();
    assert_eq!((ack.psn(), ack.msn()), (2, 1));
}

#[test]
fn acks_coalesce_until_polled() {
    let mut w = World::rc();
    for n in 0..4 {
        w.recv(0, &[8]);
        w.give(&w.packet(SendOnly, n).data(&[1; 8]).ask_ack());
    }
    let ack = w.one();
    assert_eq!((ack.psn(), ack.msn()), (3, 4));
}

#[test]
fn ack_is_given_inside_a_message_when_asked() {
    let mut w = World::rc();
    w.recv(0, &[1000]);
    let [first, middle, _] = three(&w, &pattern(600));
    w.give(&first);
    w.silent();
    w.give(&middle.ask_ack());
    let ack = w.one();
    assert_eq!((ack.psn(), ack.msn()), (1, 0));
}

#[test]
fn no_receive_draws_one_rnr_nak_until_the_retry() {
    let mut w = World::rc();
    let data = pattern(600);
    let [first, middle, last] = three(&w, &data);
    w.give(&first);
    let nak = w.one();
    assert_eq!((nak.psn(), nak.syndrome(), nak.msn()), (0, Syndrome::RnrNak { timer: 14 }, 0));
    // The rest of the burst gets no answer, even when a receive is posted.
    w.give(&middle);
    w.recv(0, &[600]);
    w.give(&last);
    w.silent();
    assert_eq!(w.memory.writes.get(), 0);
    for p in [&first, &middle, &last] {
        w.give(p);
    }
    assert_eq!(w.completion().byte_len, 600);
    assert_eq!(w.memory.slice(BUFFERS, 600), data);
    assert_eq!(w.one().psn(), 2);
    assert_eq!(w.qp.state(), QpState::Rts);
}

#[test]
fn a_retry_without_receive_draws_another_rnr_nak() {
    let mut w = World::rc();
    let only = w.packet(SendOnly, 0).data(&[1; 8]);
    for _ in 0..2 {
        w.give(&only);
        assert_eq!(w.one().syndrome(), Syndrome::RnrNak { timer: 14 });
    }
    assert_eq!(w.qp.counters().naks_sent, 2);
}

#[test]
fn a_gap_draws_one_nak_until_filled() {
    let mut w = World::rc();
    for _ in 0..4 {
        w.recv(0, &[8]);
    }
    let only = |w: &World, n| w.packet(SendOnly, n).data(&[n as u8; 8]).ask_ack();
    w.give(&only(&w, 0));
    w.give(&only(&w, 2));
    // The NAK for 1 acknowledges 0 as well.
    let nak = w.one();
    assert_eq!((nak.psn(), nak.syndrome(), nak.msn()), (1, Syndrome::Nak(NakCode::PsnSequence), 1));
    w.give(&only(&w, 3));
    w.silent();
    w.give(&only(&w, 1));
    // Early packets were kept.
    assert_eq!((w.one().psn(), w.completions().len()), (3, 4));
    w.give(&only(&w, 2));
    assert_eq!(w.one().psn(), 3, "a repetition draws the newest ACK");
    // A new gap, a new NAK.
    w.give(&only(&w, 5));
    assert_eq!(w.one().syndrome(), Syndrome::Nak(NakCode::PsnSequence));
    assert!(w.completions().is_empty());
}

#[test]
fn a_gap_filled_before_the_nak_went_out_draws_none() {
    let mut w = World::rc();
    for _ in 0..3 {
        w.recv(0, &[8]);
    }
    w.give(&w.packet(SendOnly, 0).data(&[1; 8]).ask_ack());
    w.give(&w.packet(SendOnly, 2).data(&[1; 8]));
    w.give(&w.packet(SendOnly, 1).data(&[1; 8]));
    // One ACK acknowledges all of them.
    let ack = w.one();
    assert_eq!((ack.psn(), ack.syndrome()), (2, ACK));
}

#[test]
fn duplicates_are_acknowledged_and_not_executed() {
    let mut w = World::rc();
    w.recv(0, &[8]);
    w.recv(0, &[8]);
    let only = w.packet(SendOnly, 0).data(&[1; 8]).ask_ack();
    w.give(&only);
    w.give(&w.packet(SendOnly, 1).data(&[2; 8]).ask_ack());
    w.out();
    w.completions();
    w.give(&only);
    // The ACK goes up to the newest executed request (IBTA C9-105), because its ACK may be lost,
    // too.
    let ack = w.one();
    assert_eq!((ack.psn(), ack.syndrome(), ack.msn()), (1, ACK, 2));
    assert!(w.completions().is_empty());
    assert_eq!(w.memory.slice(BUFFERS, 8), [2; 8]);
    assert_eq!(w.qp.counters().duplicates, 1);
}

#[test]
fn a_message_longer_than_the_buffers_is_refused_on_both_sides() {
    let mut w = World::rc();
    let id = w.recv(0, &[300]);
    let next = w.recv(0, &[300]);
    let [first, middle, _] = three(&w, &pattern(600));
    w.give(&first);
    w.give(&middle);
    w.assert_refused(1, NakCode::InvalidRequest);
    let all = w.completions();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].wr_id, all[0].status), (id, WcStatus::LocLenErr));
    assert_eq!(all[0].cause.as_deref(), Some(&Cause::RecvTooShort { message: 512, buffers: 300 }));
    assert_eq!((all[1].wr_id, all[1].status), (next, WcStatus::WrFlushErr));
    // The completion reports the error, so there is no event.
    assert_eq!(w.events(), []);
    assert_eq!(w.memory.writes.get(), 1);
}

#[test]
fn a_bad_receive_buffer_is_the_responders_fault() {
    let mut w = World::rc();
    // The second entry leaves the region: not even the first byte is written.
    let (addr, lkey) = (BUFFERS + BUFFERS_LEN - 8, w.lkey);
    let good = Sge { addr: BUFFERS, length: 8, lkey };
    w.recv_sges(&[good, Sge { addr, length: 9, lkey }]);
    w.give(&w.packet(SendOnly, 0).data(&[1; 17]));
    w.assert_refused(0, NakCode::RemoteOperational);
    let c = w.completion();
    assert_eq!(c.status, WcStatus::LocProtErr);
    assert!(matches!(c.cause.as_deref(), Some(Cause::OutOfBounds { .. })));
    assert_eq!(w.memory.writes.get(), 0);
}

#[test]
fn an_unmapped_receive_buffer_is_a_fault_not_a_crash() {
    let mut w = World::rc();
    w.memory.hole.set(Some(BUFFERS + 4));
    w.recv(0, &[8]);
    w.give(&w.packet(SendOnly, 0).data(&[1; 8]));
    w.assert_refused(0, NakCode::RemoteOperational);
    assert_eq!(w.completion().cause.as_deref(), Some(&Cause::Fault { addr: BUFFERS + 4 }));
}

#[test]
fn send_buffers_need_local_write() {
    let mut w = World::rc();
    let region = crate::keys::Region { access: Access::empty(), ..*w.keys.region(w.lkey).unwrap() };
    w.keys.reregister(w.lkey, region).unwrap();
    w.recv(0, &[8]);
    w.give(&w.packet(SendOnly, 0).data(&[1; 8]));
    w.assert_refused(0, NakCode::RemoteOperational);
    assert_eq!(w.completion().status, WcStatus::LocProtErr);
}

/// Packets out of order or of a wrong length, and the PSN at which the responder refuses each.
#[test]
fn broken_messages_draw_invalid_request() {
    type Make = fn(&World) -> Vec<Request>;
    let full = [3u8; MTU];
    let cases: [(&str, Make, u32); 9] = [
        ("middle first", |w| [w.packet(SendMiddle, 0).data(&[3; MTU])].into(), 0),
        ("last first", |w| [w.packet(SendLast, 0).data(&[3; 9])].into(), 0),
        ("short first", |w| [w.packet(SendFirst, 0).data(&[3; MTU - 4])].into(), 0),
        ("long only", |w| [w.packet(SendOnly, 0).data(&[3; MTU + 4])].into(), 0),
        (
            "empty last",
            |w| [w.packet(SendFirst, 0).data(&[3; MTU]), w.packet(SendLast, 1)].into(),
            1,
        ),
        (
            "short middle",
            |w| {
                [w.packet(SendFirst, 0).data(&[3; MTU]), w.packet(SendMiddle, 1).data(&[3; 8])]
                    .into()
            },
            1,
        ),
        (
            "first in message",
            |w| {
                [w.packet(SendFirst, 0).data(&[3; MTU]), w.packet(SendFirst, 1).data(&[3; MTU])]
                    .into()
            },
            1,
        ),
        (
            "write in send",
            |w| {
                [w.packet(SendFirst, 0).data(&[3; MTU]), w.packet(WriteLast, 1).data(&[3; 8])]
                    .into()
            },
            1,
        ),
        (
            "read in send",
            |w| {
                let read = w.packet(ReadRequest, 1).reth(w.rkey, TARGET, 8);
                [w.packet(SendFirst, 0).data(&[3; MTU]), read].into()
            },
            1,
        ),
    ];
    for (name, make, psn) in cases {
        let mut w = World::rc();
        w.recv(0, &[2000]);
        for p in make(&w) {
            w.give(&p);
        }
        let writes = w.memory.writes.get();
        assert!(writes == psn as usize, "{name}: {writes} writes");
        assert!(psn == 0 || w.memory.slice(BUFFERS, MTU) == full);
        w.assert_refused(psn, NakCode::InvalidRequest);
        let status = w.completion().status;
        let events = w.events();
        if psn == 0 {
            // No receive was used, so the receive is flushed, and an event gives the reason.
            assert_eq!(status, WcStatus::WrFlushErr, "{name}");
            assert!(matches!(events[..], [QpEvent::ReqErr(_)]), "{name}: {events:?}");
        } else {
            assert_eq!(status, WcStatus::RemInvReqErr, "{name}");
            assert_eq!(events, [], "{name}");
        }
    }
}

#[test]
fn send_with_invalidate_reports_and_asks_for_the_key() {
    let mut w = World::rc();
    let mw = bound_window(&mut w);
    w.recv(0, &[8]);
    w.recv(0, &[8]);
    let invalidate = w.packet(SendOnlyInv, 0).data(&[1; 8]).invalidate(mw);
    w.give(&invalidate);
    let c = w.completion();
    assert_eq!((c.imm, c.flags), (mw, WcFlags::WITH_INV));
    let op = w.effects.key_op.take().unwrap();
    assert_eq!(op, KeyOp::Invalidate { key: mw, pd: PD, qpn: QPN });
    w.keys.apply(&op).unwrap();
    assert_eq!(w.memory.slice(BUFFERS, 8), [1; 8]);
}

/// IBTA 9.9.6.3, class J: the message is acknowledged, its receive and the connection end in error.
#[test]
fn a_key_that_cannot_be_invalidated_ends_the_connection_here_alone() {
    let bogus = 0x00ff_0000;
    let mut w = World::rc();
    let id = w.recv(0, &[8]);
    w.recv(8, &[8]);
    let only = w.packet(SendOnlyInv, 0).data(&[2; 8]).invalidate(bogus);
    w.give(&only);
    let ack = w.one();
    assert_eq!((ack.psn(), ack.syndrome()), (0, ACK));
    let done = w.completions();
    let seen: Vec<_> = done.iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(seen, [(id, WcStatus::RemInvReqErr), (id + 1, WcStatus::WrFlushErr)]);
    assert_eq!((w.qp.state(), w.events()), (QpState::Err, std::vec![]));
    assert_eq!(w.memory.slice(BUFFERS, 8), [2; 8]);
    assert_eq!(w.effects.key_op, None);
    // The ACK was lost and comes again. Later requests get no answer.
    w.give(&only);
    let again = w.one();
    assert_eq!((again.psn(), again.syndrome()), (0, ACK));
    w.give(&w.packet(SendOnly, 1).data(&[3; 8]));
    w.silent();
    assert_eq!(w.memory.writes.get(), 1);
}

#[test]
fn a_second_invalidation_waits_for_the_first() {
    let mut w = World::rc();
    let mw = bound_window(&mut w);
    w.recv(0, &[8]);
    w.recv(0, &[8]);
    w.give(&w.packet(SendOnlyInv, 0).invalidate(mw));
    w.give(&w.packet(SendOnlyInv, 1).invalidate(mw));
    assert_eq!(w.completions().len(), 1);
    assert_eq!(w.qp.state(), QpState::Rts);
}

/// A type 2 window bound on the queue pair.
fn bound_window(w: &mut World) -> u32 {
    use crate::keys::{MwType, Region};
    use crate::wr::MwBind;
    let region = Region { access: ALL | Access::MW_BIND, ..*w.keys.region(w.rkey).unwrap() };
    w.keys.reregister(w.rkey, region).unwrap();
    let mw = w.keys.alloc_mw(PD, MwType::Type2, 0x5000).unwrap();
    let access = Access::REMOTE_READ;
    let bind = MwBind { mw, new_key: mw ^ 1, mr: w.rkey, addr: TARGET, len: 64, access };
    w.keys.apply(&KeyOp::Bind { bind, pd: PD, qpn: QPN }).unwrap();
    mw ^ 1
}

#[test]
fn srq_receives_use_their_own_domain() {
    let mut w = World::new(QpType::Rc, true);
    let id = w.recv(0, &[8]);
    w.give(&w.packet(SendOnly, 0).data(&[1; 8]));
    assert_eq!(w.completion().wr_id, id);
    w.give(&w.packet(SendOnly, 1).data(&[1; 8]));
    assert_eq!(w.one().syndrome(), Syndrome::RnrNak { timer: 14 });
}

#[test]
fn xrc_receives_from_the_srq_the_packet_names() {
    let mut w = World::new(QpType::XrcRecv, true);
    let id = w.recv(0, &[1000]);
    for p in three(&w, &pattern(600)) {
        w.give(&p);
    }
    // `completion` checks that the completion goes to the SRQ's CQ under the target's number.
    assert_eq!(w.completion().wr_id, id);
    let ack = w.one();
    assert_eq!(ack.headers.bth.opcode.transport(), adverb_wire::Transport::Xrc);
    let mut stranger = w.packet(SendOnly, 3);
    stranger.headers.xrceth = Some(adverb_wire::XrcEth { srqn: SRQN + 1 });
    w.give(&stranger);
    w.assert_refused(3, NakCode::InvalidRequest);
}

#[test]
fn flush_completes_the_message_in_progress_first() {
    let mut w = World::rc();
    let ids = [w.recv(0, &[600]), w.recv(0, &[8]), w.recv(0, &[8])];
    let [first, ..] = three(&w, &pattern(600));
    w.give(&first.ask_ack());
    w.qp.fail(Cause::Injected, &mut w.effects);
    let got: Vec<_> = w.completions().iter().map(|c| (c.wr_id, c.status)).collect();
    assert_eq!(got, ids.map(|id| (id, WcStatus::WrFlushErr)));
    // A queue pair in ERR sends no answer any more.
    w.silent();
    assert!(matches!(w.events()[..], [QpEvent::Fatal(_)]));
}

#[test]
fn the_receive_queue_is_bounded_and_wraps() {
    use crate::wr::{PostError, RecvWr};
    let mut w = World::rc();
    let sge = Sge { addr: BUFFERS, length: 8, lkey: w.lkey };
    let seven = [sge; 7];
    let refused = w.qp.post_recv(&RecvWr { wr_id: 9, sges: &seven }, &mut w.effects).unwrap_err();
    assert_eq!(refused, PostError::Invalid(Cause::TooManySges { given: 7, max: 6 }));
    let mut expect = Vec::new();
    for _ in 0..8 {
        expect.push(w.recv(0, &[8]));
    }
    let full = w.qp.post_recv(&RecvWr { wr_id: 9, sges: &[sge] }, &mut w.effects).unwrap_err();
    assert_eq!(full, PostError::QueueFull(Cause::QueueFull { queue: "receive queue", depth: 8 }));
    for n in 0..20 {
        w.give(&w.packet(SendOnly, n).data(&[n as u8; 8]));
        assert_eq!(w.completion().wr_id, expect.remove(0));
        expect.push(w.recv(0, &[8]));
    }
    assert_eq!(w.qp.responder.rq.len, 8);
}
