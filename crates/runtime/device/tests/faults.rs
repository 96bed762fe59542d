//! Injected faults in the whole device. Reliable transports must deliver every byte in spite of
//! them. Users request other faults to test their own error handling.
mod common;
use adverb_device::engine::cq::arm::ArmKind;
use adverb_device::engine::{
    Access, PathMtu, QpState, QpType, RecvWr, SendFlags, SendOp, WcOpcode, WcStatus,
};
use adverb_device::faults::{self, Spec};
use adverb_device::{AsyncEvent, CompChannel, Context, Cq, Errno, Pd};
use common::operations::{
    atomics, check, invalidates_and_flushes, many_sends, sends, writes_and_reads,
};
use common::{QpEnd, WIRE, child, loopback, pair, pattern, rc};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn choose(text: &str) {
    child::log();
    faults::set(text.parse().unwrap()).unwrap();
}

/// A counter from the line in the log at the end of a process. Zero if the line does not name the
/// counter.
fn counter(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find(|l| l.contains("counters:"))
        .unwrap_or_else(|| panic!("no counters: {text}"));
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    value.map_or(0, |v| v.parse().unwrap())
}

// Loss, duplication, reordering and corruption on reliable connections.

#[test]
fn reliable_connections_survive_every_fault_of_packets() {
    let mix = "drop=5%,dup=1%,reorder=5%,corrupt=0.1%";
    for (spec, wanted) in [
        (format!("{mix},seed=1"), &["fault_drop", "fault_dup", "fault_reorder"][..]),
        (format!("{mix},delay=300us±200us,seed=2"), &["fault_drop", "fault_delay"]),
        ("corrupt=3%".into(), &["fault_corrupt", "rx_drop_icrc"]),
    ] {
        let text = child::run("inner_all_operations", &[("ADVERB_FAULT", &spec), WIRE]);
        for name in wanted {
            assert!(counter(&text, name) > 0, "no {name} with {spec}: {text}");
        }
        assert!(text.contains(&format!("faults are injected: {spec}")), "{text}");
        assert_eq!(counter(&text, "ring_sent"), 0, "{text}");
    }
}

/// FLT-5: with faults, packets stay on the path within the host, and so do one-sided requests.
#[test]
fn flt_5_faults_leave_the_path_as_it_is() {
    let mix = "drop=5%,dup=1%,reorder=5%";
    for (spec, wanted) in [
        (format!("{mix},seed=1"), &["fault_drop", "fault_dup", "fault_reorder"][..]),
        (format!("{mix},delay=300us±200us,seed=2"), &["fault_drop", "fault_delay"]),
        ("delay=1ms".into(), &["fault_delay"]),
    ] {
        let text = child::run("inner_all_operations", &[("ADVERB_FAULT", &spec)]);
        for name in wanted.iter().chain(&["ring_sent", "qp_one_sided"]) {
            assert!(counter(&text, name) > 0, "no {name} with {spec}: {text}");
        }
        assert_eq!(counter(&text, "tx_packets"), 0, "{text}");
    }
}

/// FLT-5: a fault drops a request that the initiator performs. The initiator sends the request
/// again by the retransmission rules. The next request is performed directly as usual.
#[test]
fn flt_5_a_one_sided_request_is_lost_once() {
    let text = child::run("inner_one_sided_lost", &[]);
    assert_eq!(counter(&text, "fault_drop"), 1, "{text}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_one_sided_lost() {
    choose("drop-psn=0xfffff1@#1");
    let (a, b) = rc();
    // This message uses the first PSN.
    b.recv(1, &[b.sge(0, 64)]);
    a.send(1, SendOp::Send, &[a.sge(0, 64)]);
    check(&a.wait(1)[0], WcOpcode::Send, 1);
    let remote = b.remote(0);
    for (one_sided, seed) in [(0, 3), (1, 4)] {
        a.put(0, &pattern(100, seed));
        a.send(2, SendOp::Write(remote), &[a.sge(0, 100)]);
        check(&a.wait(1)[0], WcOpcode::RdmaWrite, 2);
        assert!(b.get(0, 100) == pattern(100, seed));
        assert_eq!(a.qp.counters().one_sided, one_sided);
    }
    assert!(a.qp.counters().retransmitted >= 1, "{:?}", a.qp.counters());
}

/// FLT-5: a fault delays a request that the initiator performs, and the requests of the same post.
/// All are performed in order.
#[test]
fn flt_5_one_sided_requests_are_late() {
    let text = child::run("inner_one_sided_late", &[]);
    assert!(counter(&text, "fault_delay") > 0, "{text}");
    assert_eq!((counter(&text, "ring_sent"), counter(&text, "qp_one_sided")), (0, 41), "{text}");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_one_sided_late() {
    choose("delay=20ms");
    let (a, b) = rc();
    let remote = b.remote(0);
    let since = Instant::now();
    for n in 0..40u64 {
        a.send(n, SendOp::FetchAdd { remote, add: 1 }, &[a.sge(8 * n as usize, 8)]);
    }
    let done = a.wait(40);
    assert!(since.elapsed() >= Duration::from_millis(20), "they were not late");
    assert!(done.iter().map(|c| c.wr_id).eq(0..40));
    for n in 0..40u64 {
        assert_eq!(a.word(8 * n as usize), n, "out of turn");
    }
    // The program does not poll, so the background thread performs the request.
    let since = Instant::now();
    a.cq.req_notify(ArmKind::Next).unwrap();
    a.send(40, SendOp::Write(remote), &[a.sge(0, 8)]);
    let cq = a.channel.next_event(Some(since + Duration::from_secs(20))).unwrap();
    assert!(since.elapsed() >= Duration::from_millis(20), "it was not late");
    cq.ack_events(1);
    check(&a.wait(1)[0], WcOpcode::RdmaWrite, 40);
}

/// FLT-6: faults that concern UDP packets only have no effect within the host. The log says so.
#[test]
fn flt_6_damage_is_of_the_network_alone() {
    let text = child::run("inner_all_operations", &[("ADVERB_FAULT", "corrupt=100%,ecn=100%")]);
    assert!(
        text.contains("warn: corrupt= and ecn= apply only to packets of the network"),
        "{text}"
    );
    for name in ["fault_corrupt", "fault_ecn", "tx_packets"] {
        assert_eq!(counter(&text, name), 0, "{name}: {text}");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_all_operations() {
    child::log();
    for mtu in [PathMtu::Mtu256, PathMtu::Mtu4096] {
        let (a, b) = pair(QpType::Rc, mtu);
        sends(&a, &b, &SIZES);
        writes_and_reads(&a, &b, &SIZES);
        atomics(&a, &b);
        invalidates_and_flushes(&a, &b);
        many_sends(&a, &b, 100, 0);
    }
}

const SIZES: [usize; 5] = [0, 1, 255, 4097, 65_537];

// The same seed and the same exchange give the same faults.

#[test]
fn the_same_seed_gives_the_same_counts_and_losses() {
    let facts = |seed: u32| {
        let spec = format!("drop=5%,dup=2%,reorder=5%,corrupt=1%,seed={seed}");
        let text = child::run("inner_unreliable", &[("ADVERB_FAULT", &spec)]);
        let names = ["fault_drop", "fault_dup", "fault_reorder", "fault_corrupt"];
        let arrived = text.lines().find(|l| l.starts_with("arrived:")).unwrap().to_owned();
        (names.map(|name| counter(&text, name)), arrived)
    };
    let first = facts(5);
    assert!(first.0.iter().all(|n| *n > 0), "{first:?}");
    assert_eq!(facts(5), first);
    let other = facts(6);
    assert!(other.0 != first.0 && other.1 != first.1, "{other:?}");
}

/// Single-packet messages on UC, which has no acknowledgements and no retransmissions. The test
/// sends a message only after the previous message has arrived or met a fault, so no buffer
/// overflows.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_unreliable() {
    const COUNT: u64 = 480;
    child::log();
    let (a, b) = pair(QpType::Uc, PathMtu::Mtu1024);
    for i in 0..COUNT {
        b.recv(i, &[b.sge(8 * i as usize, 8)]);
    }
    let mut arrived = Vec::new();
    for i in 0..COUNT {
        a.put(0, &i.to_ne_bytes());
        a.send(i, SendOp::Send, &[a.sge(0, 8)]);
        a.wait(1);
        let end = Instant::now() + Duration::from_secs(20);
        while packets_seen(&a.context) <= i {
            assert!(
                Instant::now() < end,
                "packet {i} is lost: {:?}",
                a.context.node().link().stats()
            );
            b.cq.poll(64, |c| arrived.push(c.wr_id)).unwrap();
        }
    }
    while b.cq.poll(64, |c| arrived.push(c.wr_id)).unwrap() > 0 {}
    let words = arrived.iter().map(|at: &u64| b.word(8 * *at as usize));
    println!("\narrived: {:?}", words.collect::<Vec<_>>());
}

/// Number of packets that reached a queue pair or met a fault.
fn packets_seen(context: &Context) -> u64 {
    let s = context.node().link().stats();
    (s.rx_packets + s.faults.drop + s.faults.corrupt).saturating_sub(s.faults.dup)
}

// The remaining faults, each in a separate process.

/// A fault: the test of its process, an environment variable of the process, the faults that the
/// process counts, and words of its log.
type Fault = (
    &'static str,
    (&'static str, &'static str),
    &'static [(&'static str, RangeInclusive<u64>)],
    &'static str,
);

const LOCAL: (&str, &str) = ("ADVERB_PATH", "local");
const FAULTS: [Fault; 11] = [
    ("inner_drop_psn", WIRE, &[("fault_drop", 2..=2)], ""),
    ("inner_drop_psn", LOCAL, &[("fault_drop", 2..=2)], ""),
    ("inner_rnr", LOCAL, &[("fault_rnr", SOME)], ""),
    ("inner_delay", LOCAL, &[("fault_delay", 10..=u64::MAX)], ""),
    ("inner_kill", LOCAL, &[("fault_kill_qp", 1..=1)], "warn: injected: queue pair"),
    ("inner_status", LOCAL, &[], ""),
    (
        "inner_data_path",
        LOCAL,
        &[("fault_fail", 4..=4)],
        "warn: injected: call 2 of post_send fails with EIO",
    ),
    ("inner_kill_receiver", LOCAL, &[], ""),
    (
        "inner_fail",
        LOCAL,
        &[("fault_fail", 5..=5)],
        "warn: injected: call 2 of create_cq fails with ENOMEM",
    ),
    ("inner_bad", ("ADVERB_FAULT", "drop=1%,dorp=2%"), &[], ""),
    (
        "inner_events",
        WIRE,
        &[("fault_event", 2..=2), ("fault_ecn", SOME), ("fault_delay", SOME)],
        "",
    ),
];
const SOME: RangeInclusive<u64> = 1..=u64::MAX;

/// FLT-1, FLT-3, FLT-4, and the faults without a number.
#[test]
fn each_fault_happens_as_asked_for() {
    for (process, variable, counts, words) in FAULTS {
        let text = child::run(process, &[variable]);
        for (name, expected) in counts {
            assert!(expected.contains(&counter(&text, name)), "{process}: {name}: {text}");
        }
        assert!(text.contains(words), "{process}: {text}");
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_drop_psn() {
    // The first PSN of the connection is 0xfffff0. The first rule drops a request to `b`, the
    // second rule drops the acknowledgement of a later request.
    choose("drop-psn=0xfffff1@#2,drop-psn=0xfffff3@#1");
    let (a, b) = rc();
    sends(&a, &b, &SIZES);
    // The second message was lost once, and so was the answer to the fourth message.
    assert!(a.qp.counters().retransmitted >= 2, "{:?}", a.qp.counters());
    assert!(a.qp.counters().timeouts + a.qp.counters().probes >= 1);
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_rnr() {
    choose("rnr=50ms");
    let (a, b) = rc();
    let start = Instant::now();
    sends(&a, &b, &SIZES);
    assert!(start.elapsed() >= Duration::from_millis(50), "the receives were there");
    assert!(a.qp.counters().rnr_naks > 0);
    let after = a.qp.counters().rnr_naks;
    sends(&a, &b, &SIZES);
    assert_eq!(a.qp.counters().rnr_naks, after, "it did not end");
}

/// Only the delayed packet wakes the process: there is no acknowledgement, no timeout and no
/// polling.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_delay() {
    choose("delay=5ms");
    let (a, b) = pair(QpType::Uc, PathMtu::Mtu1024);
    for i in 0..10 {
        b.recv(i, &[b.sge(0, 8)]);
        b.cq.req_notify(ArmKind::Next).unwrap();
        let start = Instant::now();
        a.send(i, SendOp::Send, &[a.sge(0, 8)]);
        let cq = b.channel.next_event(Some(start + Duration::from_secs(20))).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(5), "it was not delayed");
        cq.ack_events(1);
        check(&b.wait(1)[0], WcOpcode::Recv, i);
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_kill() {
    choose("kill-qp=1@after=5");
    let (a, b) = rc();
    for i in 0..8 {
        b.recv(i, &[b.sge(0, 64)]);
    }
    for i in 0..5 {
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
        check(&a.wait(1)[0], WcOpcode::Send, i);
    }
    a.send(5, SendOp::Send, &[a.sge(0, 64)]);
    let c = a.wait(1).remove(0);
    assert_eq!((c.status, c.wr_id), (WcStatus::WrFlushErr, 5));
    assert!(c.cause.as_ref().unwrap().to_string().contains("injected"), "{:?}", c.cause);
    assert_eq!(a.qp.state(), QpState::Err);
    let (event, element) = a.context.next_async_event().unwrap();
    assert_eq!(event, AsyncEvent::QpFatal);
    a.context.ack_async_event(&element);
    assert_eq!(b.qp.state(), QpState::Rts, "another queue pair failed");
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_status() {
    choose("kill-qp=1@after=2@status=retry_exc_err,kill-qp=3@after=0@status=rem_op_err");
    for (good, status) in [(2, WcStatus::RetryExcErr), (0, WcStatus::RemOpErr)] {
        let (a, b) = rc();
        for i in 0..good {
            b.recv(i, &[b.sge(0, 64)]);
            a.send(i, SendOp::Send, &[a.sge(0, 64)]);
            check(&a.wait(1)[0], WcOpcode::Send, i);
        }
        a.send(good, SendOp::Send, &[a.sge(0, 64)]);
        let c = a.wait(1).remove(0);
        assert_eq!((c.status, c.wr_id), (status, good));
        assert!(c.cause.as_ref().unwrap().to_string().contains("injected"), "{:?}", c.cause);
        assert_eq!(a.qp.state(), QpState::Err);
        // Later requests are flushed.
        a.send(9, SendOp::Send, &[a.sge(0, 64)]);
        assert_eq!(a.wait(1)[0].status, WcStatus::WrFlushErr);
    }
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_data_path() {
    choose("fail=post_send@2=EIO,fail=post_recv@2=EINVAL,fail=req_notify_cq@1,fail=poll_cq@1");
    let (a, b) = rc();
    let (to, from) = ([b.sge(0, 64)], [a.sge(0, 64)]);
    let receive = |wr_id| b.qp.post_recv(&RecvWr { wr_id, sges: &to });
    let send = |wr_id| {
        let wr = common::request(wr_id, SendFlags::SIGNALED, SendOp::Send, &from);
        a.qp.post_sends(&[wr], false)
    };
    receive(1).unwrap();
    assert_eq!(receive(2).unwrap_err().errno(), Errno::EINVAL as i32);
    receive(3).unwrap();
    send(1).unwrap();
    assert_eq!(send(2).unwrap_err().errno(), Errno::EIO as i32);
    send(3).unwrap();
    assert_eq!(b.cq.req_notify(ArmKind::Next).unwrap_err().errno(), Errno::ENOMEM as i32);
    b.cq.req_notify(ArmKind::Next).unwrap();
    assert!(b.cq.poll(1, |_| panic!("it fails")).is_err());
    // A refused request is not queued. All other requests complete as usual.
    let ids = |end: &QpEnd| end.wait(2).iter().map(|c| c.wr_id).collect::<Vec<_>>();
    assert_eq!((ids(&a), ids(&b)), (vec![1, 3], vec![1, 3]));
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_kill_receiver() {
    choose("kill-qp=2@after=3");
    let (a, b) = pair(QpType::Uc, PathMtu::Mtu1024);
    for i in 0..8 {
        b.recv(i, &[b.sge(0, 64)]);
    }
    for i in 0..4 {
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
    }
    let statuses: Vec<WcStatus> = b.wait(8).iter().map(|c| c.status).collect();
    assert_eq!(statuses[..3], [WcStatus::Success; 3]);
    assert_eq!(statuses[3..], [WcStatus::WrFlushErr; 5]);
}

fn open() -> Result<Arc<Context>, adverb_device::Error> {
    loopback().open()
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_fail() {
    choose(
        "fail=create_cq@2,fail=alloc_pd@1,fail=open_device@2,fail=create_comp_channel@1,fail=reg_mr@1",
    );
    let context = open().unwrap();
    let no_memory = |what: &str, error: Option<adverb_device::Error>| {
        let error = error.unwrap_or_else(|| panic!("{what} did not fail"));
        assert_eq!(error.errno(), Errno::ENOMEM as i32, "{what}: {error}");
        assert!(error.to_string().contains("injected"), "{what}: {error}");
    };
    no_memory("open_device", open().err());
    no_memory("alloc_pd", Pd::new(&context).err());
    no_memory("create_comp_channel", CompChannel::new(&context).err());
    let pd = Pd::new(&context).unwrap();
    let register = || adverb_device::buffer::Buffer::new(&pd, 4096, Access::empty());
    no_memory("reg_mr", register().err());
    assert!(register().is_ok());
    let cq = || Cq::new(&context, 10, None, 0);
    assert!(cq().is_ok());
    no_memory("create_cq", cq().err());
    assert!(cq().is_ok());
}

#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_bad() {
    for _ in 0..2 {
        let error = open().unwrap_err();
        assert_eq!(error.errno(), Errno::EINVAL as i32);
        let text = error.to_string();
        assert!(
            text.contains("ADVERB_FAULT") && text.contains("dorp=2%") && text.contains("reorder"),
            "{text}"
        );
    }
    // The call `faults::set` takes precedence over the environment variable.
    faults::set(Spec::default()).unwrap();
    open().unwrap();
    assert_eq!(faults::set(Spec::default()).unwrap_err().errno(), Errno::EBUSY as i32);
}

/// FLT-1, FLT-3, FLT-4: the program receives events about the queue pair and about the port. The
/// receiver answers ECN marks with CNPs. A delay can concern a single queue pair.
#[test]
#[ignore = "run by another test, in a process of its own"]
fn inner_events() {
    choose("event=comm_est@2@after=1,event=port_err@2@after=3,ecn=100%,delay-qp=2@2ms");
    let (a, b) = rc();
    for i in 0..4 {
        let since = Instant::now();
        b.recv(i, &[b.sge(0, 64)]);
        a.send(i, SendOp::Send, &[a.sge(0, 64)]);
        check(&a.wait(1)[0], WcOpcode::Send, i);
        check(&b.wait(1)[0], WcOpcode::Recv, i);
        assert!(since.elapsed() >= Duration::from_millis(2));
    }
    for wanted in [AsyncEvent::CommEst, AsyncEvent::PortErr] {
        let (event, element) = b.context.next_async_event().unwrap();
        assert_eq!(event, wanted);
        b.context.ack_async_event(&element);
    }
}
