//! Batches: one commit, all requests or none.
//!
//! The file has one test only: the test reads the counters of the process, which no other test may
//! change meanwhile.
use adverb::testing::{HANG_LIMIT, pair_with};
use adverb::{Error, MwType, WcOpcode, WindowRights};

#[test]
fn def_2_def_3_def_6_def_8_a_batch_is_one_commit_or_none() {
    let (a, b) = pair_with(|qp| qp.max_send_wr(16)).unwrap();
    let (ours, theirs) = (a.buffer(64).unwrap(), b.buffer(64).unwrap());
    theirs.store_u64(8, 5).unwrap();
    b.qp.recv(theirs.slice(16..)).post().unwrap();
    let mw = a.pd.create_mw(MwType::Type2).unwrap();
    let before = a.context.stats();

    let mut batch = a.qp.batch();
    batch.write(b"abc", theirs.slice(..8).remote()).id(1).signaled(false).post().unwrap();
    batch.fetch_add(ours.slice(..8), theirs.slice(8..16).remote(), 2).id(2).post().unwrap();
    batch.bind_mw(&mw, ours.slice(..), WindowRights::READ).id(3).post().unwrap();
    batch.read(ours.slice(8..16), theirs.slice(8..16).remote()).id(4).fence().post().unwrap();
    batch.send("last").id(5).post().unwrap();
    assert_eq!(batch.len(), 5);
    assert_eq!(a.context.stats().committed, before.committed, "nothing before submit");
    batch.submit().unwrap();
    let after = a.context.stats();
    assert_eq!(after.commits - before.commits, 1);
    assert_eq!(after.committed - before.committed, 5);

    let done = a.cq.wait_all(4, HANG_LIMIT).unwrap();
    assert!(done.iter().all(adverb::Completion::is_ok), "{done:?}");
    assert_eq!(done.iter().map(adverb::Completion::wr_id).collect::<Vec<_>>(), [2, 3, 4, 5]);
    assert_eq!(done[1].opcode(), WcOpcode::BindMw);
    assert_eq!((ours.load_u64(0).unwrap(), ours.load_u64(8).unwrap()), (5, 7));
    assert_eq!(theirs.to_vec(..3).unwrap(), b"abc");
    assert_eq!(b.completion().unwrap().byte_len(), 4);

    // A batch that is dropped before `submit` posts nothing.
    let counted = a.context.stats().committed;
    let mut batch = a.qp.batch();
    batch.write(b"xyz", theirs.slice(..8).remote()).post().unwrap();
    drop(batch);
    // If one request is refused, no request is posted, and the window keeps its key.
    let key = mw.key();
    let mut batch = a.qp.batch();
    batch.write(b"xyz", theirs.slice(..8).remote()).post().unwrap();
    batch.bind_mw(&mw, ours.slice(..), WindowRights::READ).post().unwrap();
    batch.write(b"xyz", theirs.slice(..2).remote()).post().unwrap();
    let e = batch.submit().unwrap_err();
    assert_eq!(e.index, 2);
    assert!(matches!(e.error, Error::RemoteTooShort { needed: 3, len: 2 }), "{e}");
    assert_eq!(mw.key(), key);
    // If the batch has more requests than the queue can hold, none is posted.
    let mut batch = a.qp.batch();
    for _ in 0..17 {
        batch.write(b"xyz", theirs.slice(..8).remote()).post().unwrap();
    }
    let e = batch.submit().unwrap_err();
    assert_eq!(e.index, 16);
    assert!(matches!(e.error, Error::QueueFull { .. }), "{e}");
    a.qp.batch().submit().unwrap();
    assert_eq!(a.context.stats().committed, counted);
    assert_eq!(theirs.to_vec(..3).unwrap(), b"abc");
    assert!(a.cq.poll_one().unwrap().is_none(), "DEF-3: no completion of what was not posted");
}
