//! Datagrams, unreliable connections, shared receive queues, XRC.
use adverb::testing::{Endpoint, HANG_LIMIT, pair_with};
use adverb::{AsyncElement, AsyncEventKind, Error, GRH_LEN, QpState, QpType, WcOpcode};

#[test]
fn datagrams_find_their_way() {
    let (a, b) = pair_with(|qp| qp.ud()).unwrap();
    assert_eq!(a.qp.state(), QpState::Rts);
    let into = b.buffer(GRH_LEN + 100).unwrap();
    b.qp.recv(&into).post().unwrap();
    let info = b.qp.info().unwrap();
    let ah = a.pd.create_ah(info.gid).unwrap();
    assert_eq!(ah.gid(), info.gid);
    a.qp.send_imm("datagram", 9).to(&ah, info.number, info.qkey).post().unwrap();
    let got = b.completion().unwrap();
    assert_eq!((got.byte_len(), got.imm(), got.source_qp()), (GRH_LEN + 8, Some(9), a.qp.number()));
    assert_eq!(into.to_vec(GRH_LEN..got.byte_len()).unwrap(), b"datagram");
    let e = a.qp.send("nowhere").post().unwrap_err();
    assert!(matches!(e, Error::Destination { needed: true }), "{e}");
    // A datagram with a wrong Q_Key is dropped; the next datagram arrives.
    b.qp.recv(&into).post().unwrap();
    a.qp.send("wrong").to(&ah, info.number, 1).post().unwrap();
    a.qp.send("right!").to(&ah, info.number, info.qkey).post().unwrap();
    assert_eq!(b.completion().unwrap().byte_len(), GRH_LEN + 6);
}

#[test]
fn unreliable_connections_send_and_write() {
    let (a, b) = pair_with(|qp| qp.uc()).unwrap();
    let into = b.buffer(16).unwrap();
    b.qp.recv(into.slice(..8)).post().unwrap();
    a.qp.write("write", into.slice(8..).remote()).post().unwrap();
    a.qp.send("send").post().unwrap();
    b.completion().unwrap();
    assert_eq!(into.to_vec(..).unwrap(), b"send\0\0\0\0write\0\0\0");
    let e = a.qp.read(&into, into.remote()).post().unwrap_err();
    assert_eq!(e.errno(), 22, "no reads without acknowledgements: {e}");
}

#[test]
fn a_shared_receive_queue_serves_many_and_says_when_it_runs_low() {
    let end = Endpoint::new(|qp| qp).unwrap();
    let srq = end.pd.create_srq().max_wr(8).limit(2).build().unwrap();
    let into = end.buffer(64).unwrap();
    for i in 0..3 {
        srq.recv(into.slice(i * 8..i * 8 + 8)).id(i as u64).post().unwrap();
    }
    assert_eq!((srq.len(), srq.is_empty()), (3, false));
    let receivers = [0, 1].map(|_| end.pd.create_qp().cq(&end.cq).srq(&srq).build().unwrap());
    let senders = receivers.each_ref().map(|receiver| {
        let sender = end.pd.create_qp().build().unwrap();
        sender.connect_to(&receiver.info().unwrap()).unwrap();
        receiver.connect_to(&sender.info().unwrap()).unwrap();
        sender
    });
    assert!(receivers[0].recv(&into).post().is_err(), "its receives are the shared ones");
    senders[0].send("one").post().unwrap();
    let first = end.completion().unwrap();
    assert_eq!((first.wr_id(), first.qp_number()), (0, receivers[0].number()));
    assert_eq!(end.context.try_async_event(), None);
    senders[1].send("two").post().unwrap();
    let second = end.completion().unwrap();
    assert_eq!((second.wr_id(), second.qp_number()), (1, receivers[1].number()));
    let event = end.context.async_event_within(HANG_LIMIT).unwrap();
    assert_eq!(event.kind, AsyncEventKind::SrqLimitReached);
    assert_eq!(event.to, AsyncElement::Srq(srq.number()));
    srq.set_limit(1).unwrap();
    assert!(srq.set_limit(9).is_err());
    assert!(matches!(srq.clone().destroy(), Err(Error::Busy { .. })));
}

#[test]
fn xrc_reaches_each_queue_over_one_connection() {
    let (a, b) = (Endpoint::new(|qp| qp.xrc_send()).unwrap(), Endpoint::new(|qp| qp).unwrap());
    let xrcd = b.context.open_xrcd().unwrap();
    let target = xrcd.create_qp().build().unwrap();
    assert_eq!((a.qp.qp_type(), target.qp_type()), (QpType::XrcSend, QpType::XrcRecv));
    let into = b.buffer(16).unwrap();
    let queues = [0, 1].map(|i| {
        let srq = b.pd.create_srq().xrc(&xrcd, &b.cq).build().unwrap();
        srq.recv(into.slice(i * 8..i * 8 + 8)).id(i as u64).post().unwrap();
        srq
    });
    a.qp.connect_to(&target.info().unwrap()).unwrap();
    target.connect_to(&a.qp.info().unwrap()).unwrap();
    a.qp.send("second").srq(queues[1].number()).post().unwrap();
    a.qp.send("first").srq(queues[0].number()).post().unwrap();
    let ids = [b.completion().unwrap(), b.completion().unwrap()].map(|c| (c.opcode(), c.wr_id()));
    assert_eq!(ids, [(WcOpcode::Recv, 1), (WcOpcode::Recv, 0)]);
    assert_eq!(into.to_vec(..).unwrap(), b"first\0\0\0second\0\0");
    let back = a.buffer(4).unwrap();
    a.qp.read(&back, into.slice(..4).remote()).post().unwrap();
    a.cq.wait_all(3, HANG_LIMIT).unwrap().into_iter().for_each(|c| drop(c.ok().unwrap()));
    assert_eq!(back.to_vec(..).unwrap(), b"firs");
    drop(xrcd);
}
