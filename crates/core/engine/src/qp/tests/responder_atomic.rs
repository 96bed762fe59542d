//! Atomics, ATOMIC WRITE and FLUSH.
use super::responder_world::*;
use crate::types::{Access, QpState};
use crate::{Cause, QpEvent};
use adverb_wire::{Feth, NakCode, Operation::*};

#[test]
fn atomics_change_memory_and_answer_the_old_value() {
    let mut w = World::rc();
    w.memory.set(TARGET, &5u64.to_ne_bytes());
    w.give(&w.packet(FetchAdd, 0).atomic(w.rkey, TARGET, 10, 0));
    w.give(&w.packet(CompareSwap, 1).atomic(w.rkey, TARGET, 77, 15));
    w.give(&w.packet(CompareSwap, 2).atomic(w.rkey, TARGET, 88, 15));
    let out = w.out();
    let originals: std::vec::Vec<_> =
        out.iter().map(|s| s.headers.atomic_ack.unwrap().original).collect();
    assert_eq!(originals, [5, 15, 77]);
    assert!(out.iter().enumerate().all(|(n, s)| s.brief() == (n as u32, AtomicAcknowledge)));
    assert_eq!(out[2].msn(), 3);
    assert_eq!(w.memory.u64(TARGET), 77);
}

#[test]
fn a_duplicate_atomic_is_answered_from_memory_of_it() {
    let mut w = World::rc();
    w.memory.set(TARGET, &5u64.to_ne_bytes());
    let add = |w: &World, n| w.packet(FetchAdd, n).atomic(w.rkey, TARGET, 1, 0);
    for n in 0..6 {
        w.give(&add(&w, n));
        w.out();
    }
    for n in 2..6 {
        w.give(&add(&w, n));
        let again = w.one();
        assert_eq!(
            (again.psn(), again.headers.atomic_ack.unwrap().original),
            (n, 5 + u64::from(n))
        );
    }
    assert_eq!(w.memory.u64(TARGET), 11);
    // Older than max_dest_rd_atomic, or not the same request: dropped.
    w.give(&add(&w, 1));
    w.give(&w.packet(FetchAdd, 5).atomic(w.rkey, TARGET, 2, 0));
    w.give(&w.packet(CompareSwap, 5).atomic(w.rkey, TARGET, 1, 0));
    w.silent();
    assert_eq!((w.qp.counters().dropped_total(), w.qp.counters().duplicates), (3, 4));
    assert_eq!(w.memory.u64(TARGET), 11);
}

#[test]
fn a_duplicate_of_an_atomic_not_yet_answered_is_answered_once() {
    let mut w = World::rc();
    let add = w.packet(FetchAdd, 0).atomic(w.rkey, TARGET, 1, 0);
    w.give(&add);
    w.give(&add);
    w.one();
}

#[test]
fn atomics_are_checked() {
    // Misaligned.
    let mut w = World::rc();
    w.give(&w.packet(FetchAdd, 0).atomic(w.rkey, TARGET + 4, 1, 0));
    w.assert_refused(0, NakCode::InvalidRequest);
    assert!(
        matches!(&w.events()[..], [QpEvent::ReqErr(c)] if matches!(**c, Cause::Misaligned { .. }))
    );
    // Out of bounds.
    let mut w = World::rc();
    w.give(&w.packet(FetchAdd, 0).atomic(w.rkey, TARGET + TARGET_LEN, 1, 0));
    w.assert_refused(0, NakCode::RemoteAccess);
    // The queue pair forbids.
    let mut w = World::rc();
    w.qp.attr.access = ALL - Access::REMOTE_ATOMIC;
    w.give(&w.packet(CompareSwap, 0).atomic(w.rkey, TARGET, 1, 0));
    w.assert_refused(0, NakCode::InvalidRequest);
    // There is no resource.
    let mut w = World::rc();
    w.qp.attr.max_dest_rd_atomic = 0;
    w.give(&w.packet(CompareSwap, 0).atomic(w.rkey, TARGET, 1, 0));
    w.assert_refused(0, NakCode::InvalidRequest);
    // The memory is no longer registered.
    let mut w = World::rc();
    w.memory.hole.set(Some(TARGET));
    w.give(&w.packet(CompareSwap, 0).atomic(w.rkey, TARGET, 1, 0));
    w.assert_refused(0, NakCode::RemoteOperational);
}

#[test]
fn atomic_write_stores_eight_bytes_once() {
    let mut w = World::rc();
    let write =
        w.packet(AtomicWrite, 0).reth(w.rkey, TARGET + 8, 8).data(&[1, 2, 3, 4, 5, 6, 7, 8]);
    w.give(&write);
    let done = w.one();
    assert_eq!((done.brief(), done.payload.len(), done.msn()), ((0, ReadResponseOnly), 0, 1));
    assert_eq!(w.memory.slice(TARGET + 8, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
    w.memory.set(TARGET + 8, &[0; 8]);
    w.give(&write);
    assert_eq!(w.one().brief(), (0, ReadResponseOnly));
    assert_eq!(w.memory.slice(TARGET + 8, 8), [0; 8]);
    w.give(&w.packet(AtomicWrite, 1).reth(w.rkey, TARGET, 4).data(&[1; 8]));
    w.assert_refused(1, NakCode::InvalidRequest);
}

#[test]
fn flush_needs_its_rights_and_is_answered_like_a_read() {
    let flush = |w: &World, placement, selectivity| {
        let mut r = w.packet(Flush, 0).reth(w.rkey, TARGET, 64);
        r.headers.feth = Some(Feth { placement, selectivity });
        r
    };
    for (placement, selectivity) in [(1, 0), (2, 0), (3, 1)] {
        let mut w = World::rc();
        w.give(&flush(&w, placement, selectivity));
        let done = w.one();
        assert_eq!((done.brief(), done.payload.len(), done.msn()), ((0, ReadResponseOnly), 0, 1));
        assert_eq!(w.qp.state(), QpState::Rts);
    }
    for (placement, lacking) in [(1, Access::FLUSH_GLOBAL), (2, Access::FLUSH_PERSISTENT)] {
        for selectivity in [0, 1] {
            let mut w = World::rc();
            w.qp.attr.access = ALL - lacking;
            w.give(&flush(&w, placement, selectivity));
            w.assert_refused(0, NakCode::InvalidRequest);
            let mut w = World::rc();
            let region =
                crate::keys::Region { access: ALL - lacking, ..*w.keys.region(w.rkey).unwrap() };
            w.keys.reregister(w.rkey, region).unwrap();
            w.give(&flush(&w, placement, selectivity));
            w.assert_refused(0, NakCode::RemoteAccess);
        }
    }
    for (placement, selectivity) in [(0, 0), (4, 0), (1, 2)] {
        let mut w = World::rc();
        w.give(&flush(&w, placement, selectivity));
        w.assert_refused(0, NakCode::InvalidRequest);
    }
}

#[test]
fn both_the_address_and_the_memory_must_be_aligned() {
    // A region with an address space shifted by 4 bytes against its memory.
    for (shift, va) in [(4, TARGET + 8), (4, TARGET + 4)] {
        let mut w = World::rc();
        let region =
            crate::keys::Region { iova: TARGET + shift, ..*w.keys.region(w.rkey).unwrap() };
        w.keys.reregister(w.rkey, region).unwrap();
        w.give(&w.packet(FetchAdd, 0).atomic(w.rkey, va, 1, 0));
        w.assert_refused(0, NakCode::InvalidRequest);
    }
}

#[test]
fn a_repeated_answer_goes_before_later_ones() {
    let mut w = World::rc();
    let add = w.packet(FetchAdd, 0).atomic(w.rkey, TARGET, 1, 0);
    w.give(&add);
    w.out();
    w.give(&w.packet(ReadRequest, 1).reth(w.rkey, TARGET, 300));
    w.give(&add);
    let brief: std::vec::Vec<_> = w.out().iter().map(Sent::brief).collect();
    assert_eq!(brief, [(0, AtomicAcknowledge), (1, ReadResponseFirst), (2, ReadResponseLast)]);
}
