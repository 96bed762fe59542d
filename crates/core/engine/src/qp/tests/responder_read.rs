//! RDMA READ and the order of answers.
use super::responder_world::*;
use crate::types::{Access, QpState};
use crate::{Cause, QpEvent, WcStatus};
use adverb_wire::{NakCode, Operation::*, Syndrome};
use std::vec::Vec;

fn read(w: &World, n: u32, at: u64, len: usize) -> Request {
    w.packet(ReadRequest, n).reth(w.rkey, TARGET + at, len).ask_ack()
}

fn fill(w: &World) -> Vec<u8> {
    let data = pattern(TARGET_LEN as usize);
    w.memory.set(TARGET, &data);
    data
}

#[test]
fn a_read_is_answered_in_packets_of_the_mtu() {
    let mut w = World::rc();
    let data = fill(&w);
    w.give(&read(&w, 0, 3, 600));
    let out = w.out();
    let brief: Vec<_> = out.iter().map(Sent::brief).collect();
    assert_eq!(brief, [(0, ReadResponseFirst), (1, ReadResponseMiddle), (2, ReadResponseLast)]);
    assert_eq!(out.iter().flat_map(|s| s.payload.clone()).collect::<Vec<_>>(), data[3..603]);
    assert_eq!((out[0].msn(), out[2].msn(), out[1].headers.aeth), (1, 1, None));
    // The next request comes after the PSN of the last response.
    w.give(&read(&w, 3, 0, 256));
    let only = w.one();
    assert_eq!(
        (only.brief(), only.msn(), &only.payload[..]),
        ((3, ReadResponseOnly), 2, &data[..256])
    );
}

#[test]
fn a_read_of_nothing_needs_no_key() {
    let mut w = World::rc();
    w.give(&w.packet(ReadRequest, 0).reth(0xdead, 1, 0));
    let only = w.one();
    assert_eq!((only.brief(), only.payload.len()), ((0, ReadResponseOnly), 0));
}

#[test]
fn answers_keep_psn_order_and_acks_do_not_overtake() {
    let mut w = World::rc();
    fill(&w);
    w.recv(0, &[8]);
    w.recv(0, &[8]);
    w.give(&w.packet(SendOnly, 0).data(&[1; 8]).ask_ack());
    w.give(&read(&w, 1, 0, 300));
    w.give(&w.packet(FetchAdd, 3).atomic(w.rkey, TARGET, 1, 0));
    w.give(&w.packet(SendOnly, 4).data(&[1; 8]).ask_ack());
    // The first SEND is acknowledged by the READ response.
    let brief: Vec<_> = w.out().iter().map(Sent::brief).collect();
    assert_eq!(
        brief,
        [(1, ReadResponseFirst), (2, ReadResponseLast), (3, AtomicAcknowledge), (4, Acknowledge)]
    );
}

#[test]
fn too_many_reads_are_refused() {
    let mut w = World::rc();
    fill(&w);
    for n in 0..4 {
        w.give(&read(&w, n, 0, 8));
    }
    w.give(&read(&w, 4, 0, 8));
    // Correct requests are answered before the NAK leaves, although the queue pair is in ERR.
    assert_eq!(w.qp.state(), QpState::Err);
    let out = w.out();
    assert_eq!(out.len(), 5);
    assert!(out[..4].iter().all(|s| s.op() == ReadResponseOnly));
    assert_eq!((out[4].psn(), out[4].syndrome()), (4, Syndrome::Nak(NakCode::InvalidRequest)));
    assert!(matches!(w.events()[..], [QpEvent::ReqErr(_)]));
}

#[test]
fn answered_reads_free_their_place() {
    let mut w = World::rc();
    fill(&w);
    for n in 0..20 {
        w.give(&read(&w, n, 0, 8));
        assert_eq!(w.one().op(), ReadResponseOnly);
    }
}

#[test]
fn reads_are_checked_as_a_whole() {
    let mut w = World::rc();
    w.give(&read(&w, 0, TARGET_LEN - 8, 9));
    w.assert_refused(0, NakCode::RemoteAccess);
    let mut w = World::rc();
    w.qp.attr.access = ALL - Access::REMOTE_READ;
    w.give(&read(&w, 0, 0, 8));
    w.assert_refused(0, NakCode::InvalidRequest);
    assert!(
        matches!(&w.events()[..], [QpEvent::ReqErr(c)] if matches!(**c, Cause::QpAccessDenied { .. }))
    );
    let mut w = World::rc();
    w.give(&read(&w, 0, 0, (1 << 31) + 1));
    w.assert_refused(0, NakCode::InvalidRequest);
}

#[test]
fn a_region_that_goes_away_under_a_read_draws_a_nak() {
    let mut w = World::rc();
    fill(&w);
    let id = w.recv(0, &[8]);
    w.give(&read(&w, 0, 0, 600));
    assert_eq!(w.poll().unwrap().op(), ReadResponseFirst);
    w.keys.deregister(w.rkey).unwrap();
    w.assert_refused_late(1, NakCode::RemoteAccess);
    assert!(matches!(w.events()[..], [QpEvent::AccessErr(_)]));
    let c = w.completion();
    assert_eq!((c.wr_id, c.status), (id, WcStatus::WrFlushErr));
}

#[test]
fn a_page_that_goes_away_under_a_read_draws_a_nak() {
    let mut w = World::rc();
    fill(&w);
    w.give(&read(&w, 0, 0, 600));
    w.memory.hole.set(Some(TARGET + 300));
    assert_eq!(w.poll().unwrap().op(), ReadResponseFirst);
    w.assert_refused_late(1, NakCode::RemoteOperational);
    assert!(matches!(w.events()[..], [QpEvent::Fatal(_)]));
}

impl World {
    fn assert_refused_late(&mut self, psn: u32, code: NakCode) {
        let nak = self.one();
        assert_eq!((nak.psn(), nak.syndrome()), (psn, Syndrome::Nak(code)));
        assert_eq!(self.qp.state(), QpState::Err);
    }
}

#[test]
fn a_duplicate_read_is_read_again_from_where_it_asks() {
    let mut w = World::rc();
    let data = fill(&w);
    w.give(&read(&w, 0, 0, 600));
    assert_eq!(w.out().len(), 3);
    w.memory.set(TARGET + 256, &[0xab; 8]);
    w.give(&read(&w, 1, 256, 344));
    let out = w.out();
    let brief: Vec<_> = out.iter().map(Sent::brief).collect();
    assert_eq!(brief, [(1, ReadResponseFirst), (2, ReadResponseLast)]);
    assert_eq!((&out[0].payload[..8], &out[1].payload[..]), (&[0xab; 8][..], &data[512..600]));
    assert_eq!((w.qp.counters().duplicates, w.qp.state()), (1, QpState::Rts));
}

#[test]
fn a_duplicate_read_restarts_the_one_under_way() {
    let mut w = World::rc();
    fill(&w);
    w.give(&read(&w, 0, 0, 1024));
    w.poll();
    w.poll();
    w.give(&read(&w, 0, 0, 1024));
    let psns: Vec<_> = w.out().iter().map(Sent::psn).collect();
    assert_eq!(psns, [0, 1, 2, 3]);
}

#[test]
fn a_duplicate_read_beyond_what_was_asked_is_dropped() {
    let mut w = World::rc();
    fill(&w);
    w.give(&read(&w, 0, 0, 512));
    w.out();
    w.give(&read(&w, 0, 0, 513));
    w.silent();
    assert_eq!(w.qp.counters().dropped_total(), 1);
}

#[test]
fn a_stale_copy_of_a_read_does_no_harm() {
    let mut w = World::rc();
    fill(&w);
    let r = read(&w, 0, 0, 512);
    w.give(&r);
    w.out();
    w.keys.deregister(w.rkey).unwrap();
    w.give(&r);
    // The requester gets a NAK. The first execution of the request stays successful.
    let answer = w.one();
    assert_eq!(answer.psn(), 0);
    assert_eq!(answer.headers.aeth.unwrap().syndrome, Syndrome::Nak(NakCode::RemoteAccess));
    assert_eq!(w.qp.state(), QpState::Rts);
}

#[test]
fn duplicate_reads_cannot_pile_up() {
    let mut w = World::rc();
    fill(&w);
    for n in 0..40 {
        w.give(&read(&w, n, 0, 8));
        w.out();
    }
    for n in 0..40 {
        w.give(&read(&w, n, 0, 8));
    }
    assert_eq!(w.out().len(), 4);
    // New requests have separate resources.
    w.give(&read(&w, 40, 0, 8));
    assert_eq!(w.one().psn(), 40);
}
