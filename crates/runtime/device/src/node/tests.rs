//! Queue pairs of one process, with effects that only the node sees.
use crate::node::carriers::Relay;
use crate::node::timers::{NEVER, Timed};
use crate::node::{AnyQp, exit};
use crate::{Context, Cq, Pd, Qp, QpInit, device};
use adverb_engine::{
    AttrMask, PathMtu, Payload, QpAttr, QpCap, QpState, QpType, SendFlags, SendOp, SendWr,
};
use adverb_link::{AddrIndex, Proof, RxPacket, RxRun};
use adverb_wire::{Bth, Headers, Opcode, Operation, Psn, Transport};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

fn queue_pair(qp_type: QpType, context: &Arc<Context>, cq: &Arc<Cq>, pd: &Arc<Pd>) -> Arc<Qp> {
    let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, ..Default::default() };
    let init = QpInit {
        qp_type,
        cap,
        signal_all: true,
        send_cq: Some(cq.clone()),
        recv_cq: Some(cq.clone()),
        srq: None,
        xrcd: None,
    };
    Qp::new(context, Some(pd), &init).unwrap()
}

fn connect(context: &Arc<Context>, qp: &Qp, peer: &Qp) {
    let index = context.device().gids().iter().position(|g| g.ipv4().is_some()).unwrap() as u8;
    let modify = |attr: &QpAttr, from| {
        qp.modify(attr, AttrMask::needed(qp.qp_type(), from, attr.state)).unwrap();
    };
    let attr = QpAttr { state: QpState::Init, port_num: 1, ..QpAttr::default() };
    modify(&attr, QpState::Reset);
    let av = context
        .resolve(&crate::objects::context::AhAttr {
            dgid: context.gid(1, index.into()).unwrap(),
            sgid_index: index,
            is_global: true,
            port_num: 1,
            hop_limit: 64,
            ..Default::default()
        })
        .unwrap();
    let attr = QpAttr {
        state: QpState::Rtr,
        av,
        path_mtu: PathMtu::Mtu1024,
        dest_qpn: peer.number(),
        // 10 µs.
        min_rnr_timer: 1,
        ..QpAttr::default()
    };
    modify(&attr, QpState::Init);
    let attr = QpAttr {
        state: QpState::Rts,
        timeout: 18,
        retry_cnt: 7,
        rnr_retry: 7,
        ..QpAttr::default()
    };
    modify(&attr, QpState::Rtr);
}

struct Pair {
    context: Arc<Context>,
    cq: Arc<Cq>,
    a: Arc<Qp>,
    b: Arc<Qp>,
}

fn pair() -> Pair {
    let context = device::loopback().unwrap().unwrap().open().unwrap();
    let pd = Pd::new(&context).unwrap();
    let cq = Cq::new(&context, 16, None, 0).unwrap();
    let (a, b) =
        (queue_pair(QpType::Rc, &context, &cq, &pd), queue_pair(QpType::Rc, &context, &cq, &pd));
    connect(&context, &a, &b);
    connect(&context, &b, &a);
    Pair { context, cq, a, b }
}

fn end<const N: usize>(qps: [Arc<Qp>; N]) {
    qps.iter().for_each(|qp| qp.destroy().unwrap());
}

/// A packet of another process of this host.
fn packet(bytes: &[u8], local: Option<AddrIndex>) -> RxPacket<'_> {
    let ip = std::net::IpAddr::from([127, 0, 0, 1]);
    RxPacket {
        src: (ip, 4791).into(),
        dst: ip,
        local,
        traffic_class: 0,
        hop_limit: 64,
        proof: Proof::Process,
        bytes,
    }
}

/// Each round sets a deadline before the deadline of the missing acknowledgement, and then the
/// latter again.
#[test]
fn a_receiver_that_is_not_ready_leaves_one_entry() {
    let Pair { context, cq, a, b } = pair();
    let wr = SendWr {
        wr_id: 1,
        flags: SendFlags::SIGNALED,
        op: SendOp::Send,
        data: Payload::Sges(&[]),
        ud: None,
        xrc_srqn: 0,
    };
    a.post_sends(&[wr], false).unwrap();
    let node = context.node();
    let (mut most, begun) = (0, Instant::now());
    while most == 0 || begun.elapsed() < Duration::from_millis(300) {
        node.progress();
        most = most.max(node.timers.count(Timed::Qp(a.number())));
        assert!(begun.elapsed() < Duration::from_secs(30), "no deadline is set");
    }
    assert_eq!(most, 1, "after {:?}", a.counters());
    b.post_recv(&adverb_engine::RecvWr { wr_id: 2, sges: &[] }).unwrap();
    let (mut done, begun) = (0, Instant::now());
    while done < 2 {
        done += cq.poll(2, |c| assert_eq!(c.status, adverb_engine::WcStatus::Success)).unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "{done} of 2: a deadline was lost");
    }
    end([a, b]);
}

/// As in a signal handler that interrupted a post on the same queue pair.
#[test]
fn the_end_of_the_process_waits_for_no_lock_without_end() {
    let Pair { context, a, b, .. } = pair();
    let node = context.node();
    let interrupted = a.inner.lock();
    // The background thread may have taken the queue pair from the list. Then that thread waits.
    node.pump_soon(&*a);
    node.with_tx(|_| exit::send_at_last(node));
    let keys = node.keys.write();
    exit::send_at_last(node);
    drop((keys, interrupted));
    end([a, b]);
}

/// No thread waits for the lock of a queue pair that sends, and the deadline is served later.
#[test]
fn a_deadline_outlasts_a_taken_lock() {
    let Pair { context, a, b, .. } = pair();
    let sends = a.inner.lock();
    let at = context.node().now();
    a.timer_at.store(at.0, Ordering::Relaxed);
    context.node().enter_timer(at, Timed::Qp(a.number()), NEVER);
    let (done, is_done) = mpsc::channel();
    let other = context.clone();
    std::thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {
            other.node().run_timers();
        }
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("the thread waits for the lock");
    assert_ne!(a.timer_at.load(Ordering::Relaxed), NEVER, "served under the lock");
    drop(sends);
    let begun = Instant::now();
    while a.timer_at.load(Ordering::Relaxed) != NEVER {
        context.node().run_timers();
        assert!(begun.elapsed() < Duration::from_secs(20), "the deadline is lost");
    }
    end([a, b]);
}

#[test]
fn what_waits_for_a_receive_is_forgotten_with_a_reset() {
    let Pair { context, cq, a, b } = pair();
    let pd = a.pd().unwrap();
    let qp = queue_pair(QpType::Uc, &context, &cq, pd);
    let opcode = Opcode::new(Transport::Uc, Operation::SendOnly).unwrap();
    let mut bytes = [0; 12];
    bytes[0] = opcode.as_u8();
    let packet = packet(&bytes, None);
    let any: Arc<AnyQp> = qp.clone();
    assert!(Relay(context.node()).pending(&any, &mut qp.inner.lock(), &packet, opcode));
    assert!(qp.inner.lock().carried.relay.has_pending());
    qp.modify(&QpAttr { state: QpState::Reset, ..QpAttr::default() }, AttrMask::STATE).unwrap();
    assert!(!qp.inner.lock().carried.relay.has_pending());
    end([a, b, qp]);
}

/// A run for two queue pairs in turns, with packets for no queue pair and without a valid header in
/// between. Each queue pair counts what it refuses.
#[test]
fn each_packet_of_a_run_reaches_its_queue_pair() {
    let Pair { context, a, b, .. } = pair();
    let node = context.node();
    let datagram = Opcode::new(Transport::Ud, Operation::SendOnly).unwrap();
    let mut headers = Headers::new(Bth::new(datagram, 0, Psn::ZERO));
    headers.deth = Some(adverb_wire::Deth { qkey: 0, src_qpn: 0 });
    let mut emit = |qpn: u32, cut: usize| {
        headers.bth.dest_qpn = qpn;
        let mut bytes = vec![0; adverb_wire::MAX_HEADER_LEN];
        let len = headers.emit(&mut bytes);
        bytes.truncate(len - cut);
        bytes
    };
    let (first, second, nobody) = (a.number(), b.number(), a.number() ^ 1 << 22);
    let packets = [(first, 0), (first, 0), (nobody, 0), (second, 0), (second, 4), (first, 0)];
    let packets = packets.map(|(qpn, cut)| emit(qpn, cut));
    let head = packet(&[], Some(AddrIndex::default()));
    let before = (node.counters.no_such_qp.load(Ordering::Relaxed), malformed(&context));
    {
        let mut receiver = node.receiver.lock();
        let packets = &mut packets.iter().map(|bytes| &bytes[..]);
        node.dispatch(&mut receiver.batch, RxRun { head, packets });
        node.answer(&mut receiver.batch);
    }
    let refused = |qp: &Qp| qp.counters().dropped(adverb_engine::qp::DropReason::Transport);
    assert_eq!((refused(&a), refused(&b)), (3, 1));
    assert_eq!(node.counters.no_such_qp.load(Ordering::Relaxed), before.0 + 1);
    assert_eq!(malformed(&context), before.1 + 1);
    end([a, b]);
}

fn malformed(context: &Context) -> u64 {
    context.node().counters.malformed.load(Ordering::Relaxed)
}

/// Duplicate address detection may fail between the listing of an address and its use.
#[test]
fn sys_5_an_address_removed_since_it_was_listed_is_no_failure() {
    let context = device::loopback().unwrap().unwrap().open().unwrap();
    let node = context.node();
    for removed in ["192.0.2.77", "2001:db8::77"].map(|text| text.parse().unwrap()) {
        assert_eq!(
            node.addresses.open_if_usable(node, removed, 0).map_err(|e| e.to_string()),
            Ok(None)
        );
    }
}
