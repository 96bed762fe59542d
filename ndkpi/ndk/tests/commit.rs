//! The cost of a chain (DEF-8). The only test in this file, because the counters count the whole
//! process.
mod common;
use adverb_ndk::OpFlags;
use common::pair;

#[test]
fn def_8_a_chain_is_one_commit() {
    let (a, b) = pair();
    let (remote, token) = b.remote(0);
    let node = a.adapter.context().node();
    let write =
        |context, flags| a.qp.write(context, &[a.sge(0, 256)], remote, token, flags).unwrap();
    // The first request opens sockets and resolves routes.
    write(0, OpFlags::empty());
    a.results(1);
    let before = node.stats();
    (0..31).for_each(|i| write(i, OpFlags::DEFER));
    let held = node.stats();
    assert_eq!((held.commits, held.committed), (before.commits, before.committed), "all deferred");
    write(31, OpFlags::empty());
    let after = node.stats();
    assert_eq!((after.commits - before.commits, after.committed - before.committed), (1, 32));
    a.results(32);
    let end = node.stats();
    // The peer is in this process. Each of its acknowledgements is a packet, and at most one call.
    // Within one host there are no packets.
    let acknowledgements = (end.packets_sent - held.packets_sent).saturating_sub(32);
    let calls = end.send_calls - held.send_calls;
    assert!(calls <= 2 + acknowledgements, "{calls} calls, {acknowledgements} acknowledgements");
}
