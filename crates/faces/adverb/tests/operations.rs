//! All operations through the native API, and all misuses with their errors.
use adverb::testing::{Endpoint, HANG_LIMIT, pair, pair_with};
use adverb::{
    Cause, Completion, Error, MwType, PathMtu, Placement, QpState, Rights, WcOpcode, WcStatus,
    WindowRights,
};
use std::ops::Bound;

const fn is_send_sync<T: Send + Sync>() {}
const _: () = {
    is_send_sync::<adverb::Device>();
    is_send_sync::<adverb::Context>();
    is_send_sync::<adverb::Pd>();
    is_send_sync::<adverb::CompChannel>();
    is_send_sync::<adverb::CqEvent>();
    is_send_sync::<adverb::Cq>();
    is_send_sync::<adverb::Completions>();
    is_send_sync::<adverb::Completion>();
    is_send_sync::<adverb::Srq>();
    is_send_sync::<adverb::Qp>();
    is_send_sync::<adverb::Request<'_, '_>>();
    is_send_sync::<adverb::Batch<'_>>();
    is_send_sync::<adverb::Buffer>();
    is_send_sync::<adverb::BufSlice<'_>>();
    is_send_sync::<adverb::Mw>();
    is_send_sync::<adverb::Ah>();
    is_send_sync::<adverb::Xrcd>();
    is_send_sync::<adverb::Error>();
    is_send_sync::<adverb::connect::Listener>();
    is_send_sync::<adverb::testing::Endpoint>();
};

fn failed(end: &Endpoint) -> adverb::Failure {
    match end.cq.wait(HANG_LIMIT).unwrap().ok() {
        Err(Error::Failed(failure)) => *failure,
        other => panic!("a failure was expected: {other:?}"),
    }
}

#[test]
fn messages_gather_and_scatter() {
    let (a, b) = pair().unwrap();
    let (from, into) = (a.pd.alloc(64).unwrap(), b.pd.alloc(64).unwrap());
    from.write(0, b"helloworld").unwrap();
    b.qp.recv(&[into.slice(10..13), into.slice(..13)]).id(7).post().unwrap();
    a.qp.send(&[from.slice(5..10), from.slice(..5)]).id(8).post().unwrap();
    let got = b.completion().unwrap();
    assert_eq!((got.wr_id(), got.byte_len(), got.opcode()), (7, 10, WcOpcode::Recv));
    assert_eq!(
        (got.imm(), got.invalidated(), got.is_solicited(), got.is_recv()),
        (None, None, false, true)
    );
    assert_eq!(got.qp_number(), b.qp.number());
    assert_eq!(into.to_vec(10..13).unwrap(), b"wor");
    assert_eq!(into.to_vec(..7).unwrap(), b"ldhello");
    let sent = a.completion().unwrap();
    assert_eq!((sent.wr_id(), sent.opcode(), sent.is_recv()), (8, WcOpcode::Send, false));
}

#[test]
fn immediate_data_keeps_its_value() {
    let (a, b) = pair().unwrap();
    let into = b.buffer(8).unwrap();
    for wr_id in 0..2 {
        b.qp.recv(()).id(wr_id).post().unwrap();
    }
    a.qp.send_imm((), 0x0102_0304).solicited().post().unwrap();
    a.qp.write_imm(b"12345678", into.remote(), u32::MAX - 1).post().unwrap();
    let (first, second) = (b.completion().unwrap(), b.completion().unwrap());
    assert_eq!((first.imm(), first.is_solicited()), (Some(0x0102_0304), true));
    assert_eq!((second.imm(), second.opcode()), (Some(u32::MAX - 1), WcOpcode::RecvRdmaWithImm));
    assert_eq!(into.to_vec(..).unwrap(), b"12345678");
}

#[test]
fn one_sided_operations() {
    let (a, b) = pair().unwrap();
    let (ours, theirs) = (a.buffer(4096).unwrap(), b.buffer(4096).unwrap());
    ours.write(0, &[1; 100]).unwrap();
    a.qp.write(ours.slice(..100), theirs.remote().slice(50..)).post().unwrap();
    a.completion().unwrap();
    assert_eq!(theirs.to_vec(49..151).unwrap(), [&[0][..], &[1; 100], &[0]].concat());
    a.qp.read(ours.slice(1000..1102), theirs.slice(49..151).remote()).post().unwrap();
    assert_eq!(a.completion().unwrap().opcode(), WcOpcode::RdmaRead);
    assert_eq!(ours.to_vec(1001..1101).unwrap(), [1; 100]);

    theirs.store_u64(8, 40).unwrap();
    let word = theirs.slice(8..16).remote();
    a.qp.fetch_add(ours.slice(..8), word, 2).post().unwrap();
    a.qp.compare_swap(ours.slice(8..16), word, 42, 99).post().unwrap();
    a.qp.compare_swap(ours.slice(16..24), word, 42, 100).post().unwrap();
    for _ in 0..3 {
        a.completion().unwrap();
    }
    let old: Vec<u64> = [0, 8, 16].map(|at| ours.load_u64(at).unwrap()).to_vec();
    assert_eq!((old, theirs.load_u64(8).unwrap()), (vec![40, 42, 99], 99));
    assert_eq!(theirs.fetch_add_u64(8, 1).unwrap(), 99);
}

#[test]
fn words_are_written_and_flushed() {
    let (a, b) = pair().unwrap();
    let theirs = b.pd.create_buffer(64).remote_write().remote_flush().build().unwrap();
    a.qp.atomic_write(&77u64.to_ne_bytes(), theirs.slice(8..16).remote()).post().unwrap();
    a.qp.flush(theirs.remote(), Placement::Global).post().unwrap();
    assert_eq!(a.completion().unwrap().opcode(), WcOpcode::AtomicWrite);
    assert_eq!(a.completion().unwrap().opcode(), WcOpcode::Flush);
    assert_eq!(theirs.load_u64(8).unwrap(), 77);
    let endless = adverb::RemoteBuf { len: 1 << 32, ..theirs.remote() };
    assert!(matches!(
        a.qp.flush(endless, Placement::Persistent).post(),
        Err(Error::OutOfRange { .. })
    ));
    let not_granted = b.pd.create_buffer(64).remote_write().build().unwrap();
    a.qp.flush(not_granted.remote(), Placement::Persistent).post().unwrap();
    assert_eq!(failed(&a).status, WcStatus::RemAccessErr);
}

/// A program names a part of a peer's memory by indices. The part is no larger than the memory.
#[test]
fn a_part_of_remote_memory_is_named_by_usize() {
    let (a, b) = pair().unwrap();
    let ours = a.pd.create_buffer(8).build().unwrap();
    let theirs = b.pd.create_buffer(64).remote_write().build().unwrap();
    let whole = theirs.remote();
    let (first, size): (usize, usize) = (16, 8);
    for part in [
        whole.slice(first..first + size),
        whole.slice(first..=first + size - 1),
        whole.slice(first..).slice(..size),
        whole.slice(..first + size).slice(first..),
        whole.try_slice((Bound::Excluded(first - 1), Bound::Excluded(first + size))).unwrap(),
    ] {
        assert_eq!(part, theirs.slice(first..first + size).remote());
    }
    assert_eq!(whole.slice(..), whole);
    assert_eq!(whole.slice(whole.len as usize..).len, 0);
    ours.write(0, &[7; 8]).unwrap();
    a.qp.write(&ours, whole.slice(first..first + size)).post().unwrap();
    assert_eq!(a.completion().unwrap().status(), WcStatus::Success);
    let mut bytes = [0; 64];
    theirs.read(0, &mut bytes).unwrap();
    let is_written = |at: usize| (first..first + size).contains(&at);
    assert!(bytes.iter().enumerate().all(|(at, byte)| (*byte == 7) == is_written(at)), "{bytes:?}");
    let refused = |range: (Bound<usize>, Bound<usize>), start, end| {
        let error = whole.try_slice(range).unwrap_err();
        assert_eq!(error.to_string(), format!("bytes {start}..{end} are not inside of 64 bytes"));
    };
    refused((Bound::Included(60), Bound::Excluded(65)), 60, 65);
    refused((Bound::Included(60), Bound::Included(64)), 60, 65);
    refused((Bound::Included(65), Bound::Unbounded), 65, 64);
    refused((Bound::Included(9), Bound::Excluded(8)), 9, 8);
    refused((Bound::Unbounded, Bound::Included(usize::MAX)), 0, u64::MAX);
    let part = whole.slice(first..first + size);
    assert!(matches!(part.try_slice(..=size), Err(Error::OutOfRange { start: 0, end: 9, len: 8 })));
    assert!(std::panic::catch_unwind(|| part.slice(..=size)).is_err());
}

#[test]
fn buffers_of_no_bytes_exist() {
    let (a, b) = pair().unwrap();
    let (from, into) = (a.pd.alloc(0).unwrap(), b.pd.alloc(0).unwrap());
    assert!(from.is_empty() && from.slice(..).is_empty());
    b.qp.recv(&into).post().unwrap();
    a.qp.send(&from).post().unwrap();
    assert_eq!(b.completion().unwrap().byte_len(), 0);
}

#[test]
fn inline_data_is_free_at_once() {
    let (a, b) = pair_with(|qp| qp.max_inline(100)).unwrap();
    let (from, into) = (a.pd.alloc(100).unwrap(), b.pd.alloc(300).unwrap());
    for at in [0, 100, 200] {
        b.qp.recv(into.slice(at..at + 100)).post().unwrap();
    }
    from.write(0, &[3; 100]).unwrap();
    a.qp.send(&[from.slice(..60), from.slice(60..)]).inline().post().unwrap();
    from.write(0, &[4; 100]).unwrap();
    a.qp.send("text").post().unwrap();
    a.qp.send(&vec![5; 100]).post().unwrap();
    for _ in 0..3 {
        b.completion().unwrap();
    }
    assert_eq!(into.to_vec(..104).unwrap(), [&[3; 100][..], b"text"].concat());
    assert_eq!(into.to_vec(200..).unwrap(), [5; 100]);
    let too_long = a.qp.send(&[0; 101]).post().unwrap_err();
    assert_eq!(too_long.cause(), Some(&Cause::TooMuchInline { given: 101, max: 100 }));
    let big = a.pd.alloc(5000).unwrap();
    let too_long = a.qp.send(&big).inline().post().unwrap_err();
    assert!(
        matches!(too_long.cause(), Some(Cause::TooMuchInline { given: 5000, .. })),
        "{too_long}"
    );
}

#[test]
fn windows_open_and_close() {
    let (a, b) = pair().unwrap();
    let theirs = b.pd.create_buffer(100).windows().build().unwrap();
    let mw = b.pd.create_mw(MwType::Type2).unwrap();
    let first_key = mw.key();
    b.qp.bind_mw(&mw, theirs.slice(10..20), WindowRights::READ.and(WindowRights::WRITE))
        .post()
        .unwrap();
    assert_ne!(mw.key(), first_key, "each bind makes a new key");
    assert_eq!(b.completion().unwrap().opcode(), WcOpcode::BindMw);
    let remote = mw.remote(theirs.slice(10..20));
    a.qp.write(b"0123456789", remote).post().unwrap();
    a.completion().unwrap();
    assert_eq!(theirs.to_vec(10..20).unwrap(), b"0123456789");
    // The window keeps the buffer.
    assert!(matches!(theirs.destroy(), Err(Error::Busy { .. })));
    let back = a.pd.alloc(10).unwrap();
    a.qp.read(&back, remote).post().unwrap();
    a.completion().unwrap();
    assert_eq!(back.to_vec(..).unwrap(), b"0123456789");
    // The peer invalidates the window with a message.
    b.qp.recv(()).post().unwrap();
    a.qp.send_inv((), mw.key()).post().unwrap();
    assert_eq!(b.completion().unwrap().invalidated(), Some(mw.key()));
    a.completion().unwrap();
    a.qp.write(b"x", remote).post().unwrap();
    assert_eq!(failed(&a).status, WcStatus::RemAccessErr);
}

#[test]
fn local_invalidate_closes_a_window() {
    let (a, b) = pair().unwrap();
    let theirs = b.buffer(8).unwrap();
    let mw = b.pd.create_mw(MwType::Type2).unwrap();
    b.qp.bind_mw(&mw, theirs.slice(..), WindowRights::WRITE).signaled(false).post().unwrap();
    b.qp.local_inv(mw.key()).post().unwrap();
    assert_eq!(b.completion().unwrap().opcode(), WcOpcode::LocalInv);
    a.qp.write(b"x", mw.remote(theirs.slice(..1))).post().unwrap();
    assert_eq!(failed(&a).status, WcStatus::RemAccessErr);
}

#[test]
fn misuse_is_told_apart() {
    let end = Endpoint::new(|qp| qp.max_send_wr(2)).unwrap();
    let buf = end.buffer(10).unwrap();
    let e = end.qp.send(&buf).post().unwrap_err();
    assert!(matches!(e, Error::NotConnected { state: QpState::Init, .. }), "{e}");
    assert_eq!(e.errno(), 22);
    assert!(matches!(buf.try_slice(5..11), Err(Error::OutOfRange { start: 5, end: 11, len: 10 })));
    #[allow(clippy::reversed_empty_ranges, reason = "that is what is refused")]
    let reversed = buf.try_slice(5..4);
    assert!(matches!(reversed, Err(Error::OutOfRange { start: 5, end: 4, .. })));
    assert!(matches!(buf.try_slice(..=usize::MAX), Err(Error::OutOfRange { .. })));
    assert!(matches!(buf.write(9, &[0; 2]), Err(Error::OutOfRange { start: 9, end: 11, len: 10 })));
    assert!(matches!(buf.load_u64(4), Err(Error::Misaligned { offset: 4 })));
    assert!(matches!(buf.load_u64(8), Err(Error::OutOfRange { start: 8, end: 16, len: 10 })));
    assert!(matches!(buf.slice(..4).write(&[0; 5]), Err(Error::OutOfRange { .. })));
    let e = end.context.create_cq().entries(0).build().unwrap_err();
    assert_eq!(e.errno(), 22);
    assert!(matches!(adverb::Device::by_name("none"), Err(Error::NoSuchDevice { .. })));
    assert!(adverb::Device::by_name("lo").unwrap().is_loopback());
}

#[test]
fn a_full_queue_says_so_and_posts_nothing() {
    let (a, b) = pair_with(|qp| qp.max_send_wr(2)).unwrap();
    // Without receives, the sends stay in the queue.
    let e = loop {
        if let Err(e) = a.qp.send(b"1").post() {
            break e;
        }
    };
    assert!(matches!(e, Error::QueueFull { .. }), "{e}");
    let into = b.pd.alloc(1).unwrap();
    b.qp.recv(&into).post().unwrap();
    b.completion().unwrap();
}

#[test]
fn requests_that_do_not_fit_are_refused_before_they_are_sent() {
    let (a, b) = pair().unwrap();
    let theirs = b.buffer(4).unwrap();
    let e = a.qp.write(b"12345", theirs.remote()).post().unwrap_err();
    assert!(matches!(e, Error::RemoteTooShort { needed: 5, len: 4 }), "{e}");
    let word = a.buffer(8).unwrap();
    let e = a.qp.fetch_add(&word, theirs.remote(), 1).post().unwrap_err();
    assert!(matches!(e, Error::RemoteTooShort { needed: 8, len: 4 }), "{e}");
    let ah = a.pd.create_ah(b.qp.info().unwrap().gid).unwrap();
    let e = a.qp.send(b"1").to(&ah, 1, 1).post().unwrap_err();
    assert!(matches!(e, Error::Destination { needed: false }), "{e}");
    assert_eq!(a.qp.state(), QpState::Rts, "nothing of it was sent");
}

#[test]
fn rights_are_what_was_asked_for() {
    let (a, b) = pair().unwrap();
    let theirs = b.pd.create_buffer(8).remote_read().build().unwrap();
    assert_eq!(theirs.rights(), Rights::LOCAL.remote_read());
    a.qp.write(b"x", theirs.remote()).id(5).post().unwrap();
    let failure = failed(&a);
    assert_eq!((failure.wr_id, failure.status), (5, WcStatus::RemAccessErr));
    assert_eq!(failure.qp_number, a.qp.number());
    assert!(matches!(failure.cause.as_deref(), Some(Cause::RemoteNak { .. })), "{failure}");
    assert_eq!(theirs.to_vec(..1).unwrap(), [0]);
}

#[test]
fn a_dropped_buffer_is_out_of_reach() {
    let (a, b) = pair().unwrap();
    let theirs = b.buffer(8).unwrap();
    let remote = theirs.remote();
    drop(theirs);
    a.qp.write(b"x", remote).post().unwrap();
    assert_eq!(failed(&a).status, WcStatus::RemAccessErr);
    // If its buffer no longer exists, a receive fails. The device does not write to memory with
    // another use.
    let (a, b) = pair().unwrap();
    let into = b.buffer(8).unwrap();
    b.qp.recv(&into).post().unwrap();
    drop(into);
    a.qp.send(b"x").post().unwrap();
    assert_eq!(failed(&b).status, WcStatus::LocProtErr);
}

#[test]
fn handles_may_go_in_any_order() {
    let (a, b) = pair().unwrap();
    let Endpoint { context, pd, channel, cq, qp } = a.clone();
    drop(a);
    let into = pd.alloc(8).unwrap();
    let e = pd.destroy().unwrap_err();
    assert!(matches!(e, Error::Busy { .. }) && e.errno() == 16, "{e}");
    drop((context, channel));
    let peer = qp.clone();
    assert!(matches!(peer.destroy(), Err(Error::Busy { .. })));
    qp.recv(&into).post().unwrap();
    b.qp.send(b"still").post().unwrap();
    assert_eq!(cq.wait(HANG_LIMIT).unwrap().ok().unwrap().byte_len(), 5);
    assert!(matches!(cq.clone().destroy(), Err(Error::Busy { .. })));
    qp.destroy().unwrap();
    cq.destroy().unwrap();
    into.destroy().unwrap();
}

#[test]
fn disconnect_flushes_and_reset_begins_anew() {
    let (a, b) = pair().unwrap();
    let into = b.buffer(8).unwrap();
    b.qp.recv(&into).id(3).post().unwrap();
    b.qp.disconnect().unwrap();
    let failure = failed(&b);
    assert_eq!((failure.wr_id, failure.status), (3, WcStatus::WrFlushErr));
    let psn = b.qp.info().unwrap().first_psn;
    for end in [&a, &b] {
        end.qp.reset().unwrap();
    }
    assert_ne!(b.qp.info().unwrap().first_psn, psn);
    a.qp.connect_to(&b.qp.info().unwrap()).unwrap();
    b.qp.connect_to(&a.qp.info().unwrap()).unwrap();
    b.qp.recv(&into).post().unwrap();
    a.qp.send(b"again").post().unwrap();
    b.completion().unwrap();
    assert_eq!(into.to_vec(..5).unwrap(), b"again");
}

#[test]
fn both_sides_agree_on_mtu_and_read_depth() {
    let a = Endpoint::new(|qp| qp.path_mtu(PathMtu::Mtu512).read_depth(4, 20)).unwrap();
    let b = Endpoint::new(|qp| qp.read_depth(9, 3)).unwrap();
    a.qp.connect_to(&b.qp.info().unwrap()).unwrap();
    b.qp.connect_to(&a.qp.info().unwrap()).unwrap();
    let (a, b) = (a.qp.attributes(), b.qp.attributes());
    assert_eq!((a.path_mtu, b.path_mtu), (PathMtu::Mtu512, PathMtu::Mtu512));
    assert_eq!((a.max_rd_atomic, b.max_dest_rd_atomic), (3, 3));
    assert_eq!((b.max_rd_atomic, a.max_dest_rd_atomic), (9, 9));
}

#[test]
fn queue_pairs_of_other_types_do_not_connect() {
    let (a, b) = (Endpoint::new(|qp| qp).unwrap(), Endpoint::new(|qp| qp.uc()).unwrap());
    let e = a.qp.connect_to(&b.qp.info().unwrap()).unwrap_err();
    assert!(
        matches!(&e, Error::Connect(c) if matches!(**c, adverb::connect::ConnectError::Type { .. })),
        "{e}"
    );
    assert_eq!(a.qp.state(), QpState::Init);
}

#[test]
fn poll_fills_what_it_is_given() {
    let (a, b) = pair().unwrap();
    for i in 0..5 {
        b.qp.recv(()).id(i).post().unwrap();
    }
    for _ in 0..5 {
        a.qp.send(()).signaled(false).post().unwrap();
    }
    let mut got = vec![Completion::default(); 3];
    let mut ids = Vec::new();
    while ids.len() < 5 {
        let n = b.cq.poll(&mut got).unwrap();
        assert!(n <= 3);
        ids.extend(got[..n].iter().map(Completion::wr_id));
        std::thread::yield_now();
    }
    assert_eq!(ids, [0, 1, 2, 3, 4]);
    assert_eq!(b.cq.poll(&mut []).unwrap(), 0);
    assert_eq!(b.cq.drain().count(), 0);
}

#[test]
fn an_overflow_is_an_error_of_the_queue() {
    let (a, b) = pair().unwrap();
    let small = b.context.create_cq().entries(2).build().unwrap();
    let qp = b.pd.create_qp().cq(&small).build().unwrap();
    a.qp.reset().unwrap();
    a.qp.connect_to(&qp.info().unwrap()).unwrap();
    qp.connect_to(&a.qp.info().unwrap()).unwrap();
    for _ in 0..4 {
        qp.recv(()).post().unwrap();
    }
    for _ in 0..4 {
        a.qp.send(()).post().unwrap();
    }
    let start = std::time::Instant::now();
    while !small.is_broken() {
        assert!(start.elapsed() < HANG_LIMIT);
        // A peek at an empty queue makes progress and takes nothing.
        let _ = a.cq.peek(1);
        std::thread::yield_now();
    }
    let got: Vec<_> = small.drain().collect();
    assert_eq!(got.len(), 3, "{got:?}");
    assert!(matches!(got[2], Err(Error::CqOverflow { depth: 2 })));
    let event = b.context.async_event_within(HANG_LIMIT).unwrap();
    assert_eq!(event.to, adverb::AsyncElement::Cq(small.number()));
}
