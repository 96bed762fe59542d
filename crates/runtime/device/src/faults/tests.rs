use super::*;
use adverb_engine::{Time, WcStatus};
use nix::errno::Errno;
use proptest::prelude::*;
use std::time::Duration;

fn spec(text: &str) -> Spec {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

#[test]
fn what_is_written_is_read() {
    let read = spec(
        "drop=1%,first=9,reorder=5%, dup=1% ,corrupt=0.1%,delay=2ms±1ms,seed=7,rnr=50ms,drop-psn=5@#2,drop-psn=0xff@0x1234",
    );
    let rate = |percent_millis: u32| Rate::per_billion(percent_millis * 10_000).unwrap();
    assert_eq!(
        read,
        Spec {
            packets: PacketFaults {
                seed: 7,
                first: Some(9),
                drop: rate(1000),
                dup: rate(1000),
                reorder: rate(5000),
                corrupt: rate(100),
                delay: Some(Delay {
                    mean: Duration::from_millis(2),
                    spread: Duration::from_millis(1)
                }),
                drop_psn: vec![
                    DropPsn { psn: 5, at: Some(FaultTarget::Nth(2)) },
                    DropPsn { psn: 255, at: Some(FaultTarget::Qpn(0x1234)) },
                ],
                ..PacketFaults::default()
            },
            rnr: Some(Duration::from_millis(50)),
            ..Spec::default()
        }
    );
    let read = spec(
        "kill-qp=2@after=100,kill-qp=3@after=0@status=retry_exc_err,fail=create_cq@3,fail=post_send@1=EIO",
    );
    let kill = |nth, after, status| KillQp { nth, after, status };
    let fail = |call, at, errno| FailCall { call, at, errno };
    assert_eq!(read.kill_qp, [kill(2, 100, None), kill(3, 0, Some(WcStatus::RetryExcErr))]);
    assert_eq!(
        read.fail,
        [fail(Call::CreateCq, 3, Errno::ENOMEM), fail(Call::PostSend, 1, Errno::EIO)]
    );
    assert!(spec("").is_none() && spec("seed=3").is_none() && spec("drop=0%").is_none());
    assert!(!spec("rnr=1ns").is_none());
}

/// FLT-7: the time until the link goes down, and its duration.
#[test]
fn flt_7_a_link_goes_down_for_a_time_or_for_good() {
    let outage = |device: &str, kind, after, lasts: Option<u64>| Outage {
        device: device.into(),
        kind,
        after: Duration::from_millis(after),
        lasts: lasts.map(Duration::from_millis),
    };
    let text = "link-down=rxe0@5s+2s,link-down=rxe0@0s,device-fatal=rxe1@1ms";
    let read = spec(text);
    let expected = [
        outage("rxe0", OutageKind::LinkDown, 5000, Some(2000)),
        outage("rxe0", OutageKind::LinkDown, 0, None),
        outage("rxe1", OutageKind::DeviceFatal, 1, None),
    ];
    assert_eq!(read.outages(), expected);
    assert_eq!(read.to_string(), text);
    let short = spec("link-down=rxe0+2s").outages();
    assert_eq!(short, [outage("rxe0", OutageKind::LinkDown, 0, Some(2000))]);
    assert_eq!(spec("device-fatal=rxe0").to_string(), "device-fatal=rxe0@0s");
}

#[test]
fn times_and_shares_are_exact() {
    for (text, nanos) in [
        ("7ns", 7),
        ("1.5us", 1500),
        ("2µs", 2000),
        ("0.25ms", 250_000),
        ("1s", 1_000_000_000),
        ("3 ms", 3_000_000),
    ] {
        assert_eq!(spec(&format!("rnr={text}")).rnr, Some(Duration::from_nanos(nanos)), "{text}");
    }
    assert_eq!(spec("delay=2ms+-500us"), spec("delay=2ms ± 0.5ms"));
    assert_eq!(spec("drop=0.0000001%").packets.drop.get(), 1);
    assert_eq!(spec("drop=100%").packets.drop, Rate::ALWAYS);
    assert_eq!(spec("drop=12.50%").to_string(), "drop=12.5%");
}

#[test]
fn what_is_wrong_is_named() {
    for (text, words) in [
        ("drop=1%,drp=2%", "drop, dup, reorder, corrupt"),
        ("drop", "drop=1%"),
        ("drop=1%,", "no such fault"),
        ("drop=1", "drop=1%"),
        ("link-down=@5s", "link-down=adverb0@5s+2s"),
        ("link-down=a@5s+", "a time is in"),
        ("device-fatal=a@5s+1s", "for good"),
        ("drop=101%", "0% to 100%"),
        ("drop=-1%", "0% to 100%"),
        ("drop=1e1%", "0% to 100%"),
        ("dup=0.00000001%", "seven digits"),
        ("drop=1%,drop=2%", "twice"),
        ("delay=2", "ns, us, ms or s"),
        ("delay=1.5ns", "ns, us, ms or s"),
        ("delay=1ms±2ms", "less than nothing"),
        ("delay=61s", "60s at most"),
        ("rnr=ms", "ns, us, ms or s"),
        ("seed=x", "number"),
        ("seed=+1", "number"),
        ("drop-psn=16777216", "16777215"),
        ("drop-psn=1@#0", "from 1"),
        ("drop-psn=1@0x1000000", "queue pair number"),
        ("kill-qp=1", "kill-qp=2@after=100"),
        ("kill-qp=1@5", "kill-qp=2@after=100"),
        ("kill-qp=0@after=1", "from 1"),
        ("fail=create_cq", "create_cq@3"),
        ("fail=create_cqs@1", "create_comp_channel, create_cq, create_srq"),
        ("fail=create_cq@0", "from 1"),
        ("fail=post_send@1=EWHAT", "ENOMEM, EINVAL"),
        ("delay-qp=2", "delay-qp=2@5ms"),
        ("delay-qp=0@1ms", "from 1"),
        ("event=port_err@1", "event=port_err@1@after=20"),
        ("event=port@1@after=1", "device_fatal, port_active, port_err"),
        ("cm-drop=rep", "cm-drop=rep@1"),
        ("cm-drop=ack@1", "req, mra, rej, rep"),
        ("cm-reject=0", "from 1"),
        ("cm-reject=1@28", "cm-reject=1@reason=3"),
        ("kill-qp=1@after=1@status=good", "loc_len_err, loc_qp_op_err"),
    ] {
        // The last item is wrong.
        let item = text.rsplit(',').next().unwrap();
        let error = text.parse::<Spec>().unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains(words) && said.contains(&format!("fault {item:?}:")),
            "{text}: {said}"
        );
    }
}

fn any_time() -> impl Strategy<Value = Duration> {
    (0u64..=60, prop_oneof![Just(1_000_000_000u64), Just(1_000_000), Just(1000), Just(1), Just(7)])
        .prop_map(|(n, unit)| Duration::from_nanos(n * unit))
}

#[allow(clippy::needless_update, reason = "a further fault changes no test")]
fn any_spec() -> impl Strategy<Value = Spec> {
    let rate = || {
        prop_oneof![Just(0u32), 0..=1_000_000_000u32].prop_map(|n| Rate::per_billion(n).unwrap())
    };
    let at = prop_oneof![
        Just(None),
        (0..=0x00ff_ffffu32).prop_map(|n| Some(FaultTarget::Qpn(n))),
        (1..=u32::MAX).prop_map(|n| Some(FaultTarget::Nth(n)))
    ];
    let psns = prop::collection::vec(
        (0..=0x00ff_ffffu32, at).prop_map(|(psn, at)| DropPsn { psn, at }),
        0..3,
    );
    let delay =
        (any_time(), any_time()).prop_map(|(a, b)| Delay { mean: a.max(b), spread: a.min(b) });
    let numbers = (any::<u64>(), prop::option::of(any::<u64>()));
    let qps = (1..=u32::MAX, any_time()).prop_map(|(nth, time)| DelayQp { nth, time });
    let named = (psns, prop::collection::vec(qps, 0..3));
    let rates = [rate(), rate(), rate(), rate(), rate()];
    let packets = (numbers, rates, prop::option::of(delay), named).prop_map(
        |((seed, first), [drop, dup, reorder, corrupt, ecn], delay, (drop_psn, delay_qp))| {
            PacketFaults {
                seed,
                first,
                drop,
                dup,
                reorder,
                corrupt,
                delay,
                ecn,
                delay_qp,
                drop_psn,
                ..PacketFaults::default()
            }
        },
    );
    let status =
        prop::option::of(prop::sample::select(STATUSES.map(|(status, _)| status).to_vec()));
    let kill = (1..=u32::MAX, any::<u64>(), status);
    let kill = kill.prop_map(|(nth, after, status)| KillQp { nth, after, status });
    let errno = prop::sample::select(ERRNOS.map(|(errno, _)| errno).to_vec());
    let fail = (prop::sample::select(Call::ALL.to_vec()), 1..=u64::MAX, errno);
    let fail = fail.prop_map(|(call, at, errno)| FailCall { call, at, errno });
    let (kill, fail) = (prop::collection::vec(kill, 0..3), prop::collection::vec(fail, 0..3));
    let told = (any_events(), any_messages());
    (packets, prop::option::of(any_time()), kill, fail, told).prop_map(
        |(packets, rnr, kill_qp, fail, (events, (drop_mad, refuse)))| Spec {
            packets,
            rnr,
            kill_qp,
            fail,
            events,
            drop_mad,
            refuse,
            ..Spec::default()
        },
    )
}

fn any_events() -> impl Strategy<Value = Vec<RaiseEvent>> {
    let event = prop::sample::select(EVENTS.map(|(event, _)| event).to_vec());
    let event = (event, 1..=u32::MAX, any::<u64>());
    prop::collection::vec(
        event.prop_map(|(event, nth, after)| RaiseEvent { event, nth, after }),
        0..3,
    )
}

fn any_messages() -> impl Strategy<Value = (Vec<DropMad>, Vec<Refuse>)> {
    let drop = (prop::sample::select(MadKind::ALL.to_vec()), 1..=u64::MAX);
    let drop = drop.prop_map(|(kind, at)| DropMad { kind, at });
    let refuse = (1..=u64::MAX, 1..=u16::MAX);
    let refuse = refuse.prop_map(|(at, reason)| Refuse { at, reason: RejectReason(reason) });
    (prop::collection::vec(drop, 0..3), prop::collection::vec(refuse, 0..3))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reading_undoes_writing(spec in any_spec()) {
        prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*") {
        let _ = text.parse::<Spec>();
    }

    #[test]
    fn no_text_that_is_nearly_right_makes_the_parser_panic(
        text in "(drop|delay|delay-qp|ecn|event|cm-drop|cm-reject|rnr|drop-psn|kill-qp|fail|seed)=[0-9a-fx.@#±%+µmnus-]{0,24}"
    ) {
        if let Ok(spec) = text.parse::<Spec>() {
            prop_assert_eq!(spec.to_string().parse::<Spec>(), Ok(spec));
        }
    }
}

#[test]
fn the_call_asked_for_fails_and_no_other() {
    let injector = Injector::new(spec("fail=create_cq@2,fail=create_cq@4,fail=reg_mr@1")).unwrap();
    let failed: Vec<bool> = (0..5).map(|_| injector.call(Call::CreateCq).is_err()).collect();
    assert_eq!(failed, [false, true, false, true, false]);
    assert!(injector.call(Call::CreateQp).is_ok());
    let error = injector.call(Call::RegMr).unwrap_err();
    assert_eq!(error.errno(), Errno::ENOMEM as i32);
    assert!(error.to_string().contains("injected"), "{error}");
}

#[test]
fn a_queue_pair_ends_after_its_messages_once() {
    let injector = Injector::new(spec("kill-qp=2@after=3")).unwrap();
    let (mut first, mut second) = (injector.new_qp(), injector.new_qp());
    assert_eq!((first.nth, second.nth), (1, 2));
    let carried =
        |qp: &mut QpFaults| (0..9).map(|_| injector.carry(qp, 9, 1).is_some()).collect::<Vec<_>>();
    assert!(!carried(&mut first).contains(&true));
    assert_eq!(carried(&mut second).iter().position(|killed| *killed), Some(3));
    assert_eq!(injector.carry(&mut second, 9, 1), None, "killed twice");
    assert_eq!(injector.counters.kill_qp.load(Ordering::Relaxed), 1);
}

#[test]
fn receives_hide_from_the_first_message_on() {
    let injector = Injector::new(spec("rnr=10ns")).unwrap();
    let mut qp = injector.new_qp();
    let hides: Vec<bool> =
        [100, 109, 110, 105].map(|t| injector.hides_receives(&mut qp, Time(t))).into();
    assert_eq!(hides, [true, true, false, false], "it comes back after its end");
}

/// FLT-1: each event comes once, when its queue pair has carried this many messages.
#[test]
fn events_come_after_their_messages_once() {
    let injector =
        Injector::new(spec("event=port_err@2@after=3,event=comm_est@2@after=0")).unwrap();
    let (mut first, mut second) = (injector.new_qp(), injector.new_qp());
    let carried = |qp: &mut QpFaults| {
        injector.carry(qp, 9, 1);
        injector.events(qp)
    };
    assert!((0..9).all(|_| carried(&mut first).is_empty()));
    let arrived: Vec<_> = (0..9).map(|_| carried(&mut second)).collect();
    assert_eq!(
        (&arrived[0], &arrived[2]),
        (&vec![AsyncEvent::CommEst], &vec![AsyncEvent::PortErr])
    );
    assert_eq!(arrived.concat().len(), 2);
    assert_eq!(injector.counters.event.load(Ordering::Relaxed), 2);
}

/// FLT-2: the message with this kind and number is lost, and the request with this number refused.
#[test]
fn messages_are_lost_and_requests_refused_by_number() {
    let injector = Injector::new(spec("cm-drop=rep@2,cm-reject=2@reason=3,cm-reject=3")).unwrap();
    let message = |kind: MadKind| {
        let mut mad = [0; 256];
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[16..18].copy_from_slice(&(kind as u16).to_be_bytes());
        mad
    };
    let lost = [MadKind::Rep, MadKind::Req, MadKind::Rep, MadKind::Rep]
        .map(|kind| injector.loses_mad(&message(kind)));
    assert_eq!(lost, [false, false, true, false]);
    assert!(!injector.loses_mad(&[0; 256]));
    let refused = [(); 4].map(|()| injector.refuses().map(|reason| reason.0));
    assert_eq!(refused, [None, Some(3), Some(28), None]);
}
