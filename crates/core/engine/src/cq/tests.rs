use super::*;
use crate::completion::{WcOpcode, WcStatus};
use alloc::sync::Arc;
use proptest::prelude::*;
use std::vec::Vec;

const T0: Time = Time(1_000);
const ARMS: [ArmKind; 3] = [ArmKind::Errors, ArmKind::Solicited, ArmKind::Next];

fn success(wr_id: u64, opcode: WcOpcode, solicited: bool) -> Completion {
    Completion { solicited, ..Completion::success(wr_id, 5, opcode) }
}

fn failure(wr_id: u64, opcode: WcOpcode) -> Completion {
    Completion::failure(wr_id, 5, opcode, WcStatus::WrFlushErr, Arc::new(Cause::Injected))
}

/// One completion of every relevant class, with its class by the manual page.
fn samples() -> Vec<(Completion, Class)> {
    use WcOpcode::*;
    let mut all = Vec::new();
    for send in
        [Send, RdmaWrite, RdmaRead, CompSwap, FetchAdd, BindMw, LocalInv, Flush, AtomicWrite]
    {
        all.push((success(1, send, false), Class::Ordinary));
        all.push((success(1, send, true), Class::Ordinary));
        all.push((failure(1, send), Class::Error));
    }
    for receive in [Recv, RecvRdmaWithImm] {
        all.push((success(1, receive, false), Class::Ordinary));
        all.push((success(1, receive, true), Class::Solicited));
        all.push((failure(1, receive), Class::Error));
    }
    all
}

fn fires(arm: ArmKind, class: Class) -> bool {
    match arm {
        ArmKind::Next => true,
        ArmKind::Solicited => class != Class::Ordinary,
        ArmKind::Errors => class == Class::Error,
    }
}

#[test]
fn cqn_1_cqn_2_which_completion_fires_which_arm() {
    for arm in ARMS {
        for (completion, class) in samples() {
            let mut cq = Cq::new(4).unwrap();
            cq.arm(arm);
            let label = std::format!("{arm:?} {completion:?}");
            assert_eq!(cq.push(completion, T0), Ok(fires(arm, class)), "{label}");
            assert_eq!(cq.armed().is_none(), fires(arm, class));
        }
    }
}

/// NIC-7.
#[test]
fn by_the_rule_of_connectx_what_waits_satisfies_an_arm() {
    for arm in ARMS {
        for (completion, class) in samples() {
            let label = std::format!("{arm:?} {completion:?}");
            let mut cq = Cq::new(4).unwrap();
            assert!(!cq.arm_by(ArmRule::Waiting, arm, T0), "{label}: nothing waits");
            cq.disarm();
            assert_eq!(cq.push(completion.clone(), T0), Ok(false));
            assert!(!cq.arm_by(ArmRule::Later, arm, T0), "{label}: the rule of all others");
            cq.disarm();
            for _ in 0..2 {
                assert_eq!(cq.arm_by(ArmRule::Waiting, arm, T0), fires(arm, class), "{label}");
                assert_eq!(cq.armed().is_none(), fires(arm, class), "{label}: one event an arm");
                assert!(cq.armed().is_none() || !cq.has_missed(), "{label}: no lost wake-up");
            }
            cq.pop();
            cq.disarm();
            assert!(!cq.arm_by(ArmRule::Waiting, arm, T0), "{label}: it was polled");
            assert_eq!(cq.push(completion, T0), Ok(fires(arm, class)), "{label}: as ever");
        }
    }
}

/// NIC-7. Waiting completions count for a moderated event.
#[test]
fn by_the_rule_of_connectx_what_waits_is_counted() {
    let mut cq = Cq::new(8).unwrap();
    cq.set_moderation(3, Duration::from_micros(100));
    let received = || success(1, WcOpcode::Recv, false);
    for at in [T0, T0 + Duration::from_micros(10)] {
        assert_eq!(cq.push(received(), at), Ok(false));
    }
    let now = T0 + Duration::from_micros(50);
    assert!(!cq.arm_by(ArmRule::Waiting, ArmKind::Next, now), "two of three");
    assert_eq!(cq.poll_timeout(), Some(T0 + Duration::from_micros(100)));
    assert_eq!(cq.push(received(), now), Ok(true), "the third");
    assert!(cq.arm_by(ArmRule::Waiting, ArmKind::Next, now), "all three wait");
    assert_eq!(cq.armed(), None);
}

#[test]
fn cqn_3_what_is_there_already_never_fires() {
    let mut cq = Cq::new(4).unwrap();
    assert_eq!(cq.push(failure(1, WcOpcode::Send), T0), Ok(false));
    cq.arm(ArmKind::Next);
    assert_eq!(cq.poll_timeout(), None);
    assert!(!cq.handle_timeout(Time(u64::MAX)));
    assert_eq!(cq.push(success(2, WcOpcode::Send, false), T0), Ok(true));
}

#[test]
fn cqn_4_cqn_5_one_event_however_often_armed() {
    let mut cq = Cq::new(9).unwrap();
    cq.arm(ArmKind::Next);
    cq.arm(ArmKind::Next);
    assert_eq!(cq.push(success(1, WcOpcode::Recv, true), T0), Ok(true));
    assert_eq!(cq.push(success(2, WcOpcode::Recv, true), T0), Ok(false));
    cq.arm(ArmKind::Solicited);
    cq.arm(ArmKind::Solicited);
    assert_eq!(cq.push(success(3, WcOpcode::Recv, true), T0), Ok(true));
    assert_eq!(cq.push(failure(4, WcOpcode::Recv), T0), Ok(false));
}

#[test]
fn cqn_6_ndk_1_combinations() {
    use ArmKind::*;
    let table = [
        (Errors, Errors, Errors),
        (Errors, Solicited, Solicited),
        (Errors, Next, Next),
        (Solicited, Errors, Solicited),
        (Solicited, Solicited, Solicited),
        (Solicited, Next, Next),
        (Next, Errors, Next),
        (Next, Solicited, Next),
        (Next, Next, Next),
    ];
    for (first, second, both) in table {
        let mut cq = Cq::new(1).unwrap();
        cq.arm(first);
        cq.arm(second);
        assert_eq!(cq.armed(), Some(both), "{first:?} then {second:?}");
    }
}

#[test]
fn cqn_7_cqn_8_polling_and_events_are_apart() {
    let mut cq = Cq::new(4).unwrap();
    cq.arm(ArmKind::Next);
    assert_eq!(cq.push(success(7, WcOpcode::Send, false), Time(42)), Ok(true));
    assert_eq!(
        cq.peek().map(|c| c.wr_id).collect::<Vec<_>>(),
        [7],
        "EXT-1: there when the event is due"
    );
    assert_eq!(cq.pop().map(|c| (c.wr_id, c.timestamp)), Some((7, Time(42))));
    assert!(cq.is_empty());
    // Draining does not disarm.
    cq.arm(ArmKind::Next);
    assert!(cq.pop().is_none());
    assert_eq!(cq.push(success(8, WcOpcode::Send, false), T0), Ok(true));
}

#[test]
fn cqn_8_which_completion_made_the_event() {
    let mut cq = Cq::new(8).unwrap();
    let add = |cq: &mut Cq, solicited| cq.push(success(1, WcOpcode::Recv, solicited), T0).unwrap();
    assert!(!cq.next_made_the_event(), "an empty queue, before any event");
    assert!(!add(&mut cq, true));
    assert!(!cq.next_made_the_event(), "no event was made");
    cq.arm(ArmKind::Solicited);
    assert!(!add(&mut cq, false) && add(&mut cq, true) && !add(&mut cq, true));
    let made: Vec<_> = std::iter::from_fn(|| {
        let made = cq.next_made_the_event();
        cq.pop().map(|_| made)
    })
    .collect();
    assert_eq!(made, [false, false, true, false]);
    assert!(!cq.next_made_the_event());
    // A moderated event belongs to the newest completion.
    cq.set_moderation(0, Duration::from_micros(1));
    cq.arm(ArmKind::Next);
    assert!(!add(&mut cq, false) && !add(&mut cq, false));
    assert!(cq.handle_timeout(T0 + Duration::from_micros(1)));
    assert!(!cq.next_made_the_event());
    cq.pop();
    assert!(cq.next_made_the_event());
}

#[test]
fn overflow_breaks_the_queue_for_good() {
    let mut cq = Cq::new(2).unwrap();
    cq.arm(ArmKind::Errors);
    for i in 0..2 {
        assert_eq!(cq.push(success(i, WcOpcode::Send, false), T0), Ok(false));
    }
    assert!(!cq.is_broken());
    assert_eq!(
        cq.push(failure(2, WcOpcode::Send), T0),
        Err(Overrun { cause: Cause::CqOverflow { depth: 2 }, fire: false })
    );
    assert!(cq.is_broken());
    assert_eq!(cq.armed(), Some(ArmKind::Errors), "what was lost fires nothing");
    assert_eq!(cq.pop().map(|c| c.wr_id), Some(0), "what is there stays pollable");
    assert!(cq.push(success(3, WcOpcode::Send, false), T0).is_err(), "room or not");
    assert_eq!(cq.len(), 1);
}

#[test]
fn resize_and_purge() {
    let mut cq = Cq::new(0).unwrap();
    assert_eq!(cq.capacity(), 1);
    cq.resize(4).unwrap();
    for i in 0..4 {
        let qpn = if i % 2 == 0 { 5 } else { 6 };
        cq.push(Completion { qpn, ..success(i, WcOpcode::Send, false) }, T0).unwrap();
    }
    assert!(matches!(cq.resize(3), Err(Cause::BadArgument { what: "cqe", .. })));
    assert!(matches!(cq.resize(0), Err(Cause::BadArgument { what: "cqe", .. })));
    assert_eq!(cq.capacity(), 4);
    cq.purge(5);
    assert_eq!(cq.peek().map(|c| c.wr_id).collect::<Vec<_>>(), [1, 3]);
    cq.resize(2).unwrap();
    assert!(cq.push(success(9, WcOpcode::Send, false), T0).is_err());
}

#[test]
fn ext_2_count_or_period() {
    let at = |us: u64| Time(us * 1_000);
    let one = || success(1, WcOpcode::Send, false);
    let mut cq = Cq::new(100).unwrap();
    cq.set_moderation(3, Duration::from_micros(50));
    // Not armed: nothing is moderated.
    cq.push(one(), at(0)).unwrap();
    assert_eq!(cq.poll_timeout(), None);
    // By count.
    cq.arm(ArmKind::Next);
    assert_eq!(cq.push(one(), at(10)), Ok(false));
    assert_eq!(cq.poll_timeout(), Some(at(60)));
    assert_eq!(cq.push(one(), at(11)), Ok(false));
    assert_eq!(cq.push(one(), at(12)), Ok(true));
    assert_eq!(cq.poll_timeout(), None);
    // By time, from the first completion, once.
    cq.arm(ArmKind::Solicited);
    assert_eq!(cq.push(one(), at(90)), Ok(false));
    assert_eq!(cq.poll_timeout(), None, "does not match the arm");
    assert_eq!(cq.push(success(1, WcOpcode::Recv, true), at(100)), Ok(false));
    assert_eq!(cq.push(failure(1, WcOpcode::Recv), at(140)), Ok(false));
    assert!(!cq.handle_timeout(at(149)));
    assert!(cq.handle_timeout(at(150)));
    assert!(!cq.handle_timeout(at(1_000)));
    assert_eq!(cq.armed(), None);
    // One part alone.
    cq.set_moderation(2, Duration::ZERO);
    cq.arm(ArmKind::Next);
    assert_eq!(cq.push(one(), at(200)), Ok(false));
    assert_eq!(cq.poll_timeout(), None);
    assert_eq!(cq.push(one(), at(900)), Ok(true));
    cq.set_moderation(0, Duration::from_micros(5));
    cq.arm(ArmKind::Next);
    assert_eq!(cq.push(one(), at(1_000)), Ok(false));
    assert_eq!(cq.poll_timeout(), Some(at(1_005)));
    // Moderation is switched off while an event is moderated: the event is due at once.
    cq.set_moderation(0, Duration::ZERO);
    assert!(cq.poll_timeout() <= Some(at(1_000)));
    assert!(cq.handle_timeout(at(1_001)));
}

#[test]
fn ext_3_a_persistent_arm_fires_until_it_is_taken_back() {
    let one = |solicited| success(1, WcOpcode::Recv, solicited);
    let mut cq = Cq::new(100).unwrap();
    cq.arm_persistent(ArmKind::Solicited);
    assert!(cq.is_persistent());
    for _ in 0..3 {
        assert_eq!(cq.push(one(true), T0), Ok(true));
        assert_eq!(cq.push(one(false), T0), Ok(false));
        assert_eq!(cq.armed(), Some(ArmKind::Solicited));
    }
    // A second arm combines and is persistent, too.
    cq.arm(ArmKind::Next);
    assert_eq!([cq.push(one(false), T0), cq.push(one(false), T0)], [Ok(true), Ok(true)]);
    // In batches of two (EXT-2).
    cq.set_moderation(2, Duration::ZERO);
    let fired: Vec<_> = (0..6).map(|_| cq.push(one(true), T0)).collect();
    assert_eq!(fired, [Ok(false), Ok(true), Ok(false), Ok(true), Ok(false), Ok(true)]);
    cq.set_moderation(0, Duration::ZERO);
    cq.disarm();
    assert!(!cq.is_persistent());
    assert_eq!(cq.push(one(true), T0), Ok(false));
    cq.arm(ArmKind::Next);
    assert_eq!(
        [cq.push(one(true), T0), cq.push(one(true), T0)],
        [Ok(true), Ok(false)],
        "one-shot again"
    );
}

#[test]
fn disarming_forgets_moderated_completions() {
    let mut cq = Cq::new(100).unwrap();
    cq.set_moderation(2, Duration::from_micros(5));
    cq.arm(ArmKind::Next);
    assert_eq!(cq.push(success(1, WcOpcode::Send, false), T0), Ok(false));
    cq.disarm();
    assert_eq!(cq.poll_timeout(), None);
    cq.arm(ArmKind::Next);
    assert_eq!(
        cq.push(success(1, WcOpcode::Send, false), T0),
        Ok(false),
        "the first since this arm"
    );
}

#[test]
fn ndk_2_what_is_new_since_the_last_callback_satisfies_an_arm_at_once() {
    let one = || success(1, WcOpcode::Send, false);
    let mut cq = Cq::new(100).unwrap();
    assert!(!cq.arm_fresh(ArmKind::Next, T0), "empty");
    assert_eq!(cq.push(one(), T0), Ok(true));
    // The callback runs. Another completion comes meanwhile, and the callback takes only the first.
    cq.mark_notified();
    assert_eq!(cq.push(one(), T0), Ok(false));
    cq.pop();
    assert!(cq.arm_fresh(ArmKind::Next, T0), "placed since the callback");
    assert_eq!(cq.armed(), None, "satisfied");
    cq.mark_notified();
    // All completions were there at the last callback, so NDKPI allows both; the queue waits for
    // the next completion.
    assert!(!cq.arm_fresh(ArmKind::Next, T0));
    assert_eq!(cq.push(one(), T0), Ok(true));
    // The completion is new but was taken before the arm: the queue is empty.
    cq.mark_notified();
    assert_eq!(cq.push(one(), T0), Ok(false));
    while cq.pop().is_some() {}
    assert!(!cq.arm_fresh(ArmKind::Next, T0));
}

/// A thread that arms reads the clock first. Another thread may add a completion before the arm
/// takes effect.
#[test]
fn ndk_2_a_completion_later_than_the_clock_of_the_arm_satisfies_it_too() {
    let one = || success(1, WcOpcode::Send, false);
    let mut cq = Cq::new(100).unwrap();
    assert_eq!(cq.push(one(), Time(5)), Ok(false));
    assert!(cq.arm_fresh(ArmKind::Next, Time(3)));
    cq.mark_notified();
    cq.set_moderation(2, Duration::ZERO);
    assert_eq!(cq.push(one(), Time(9)), Ok(false));
    assert!(!cq.arm_fresh(ArmKind::Next, Time(7)), "one of two");
    assert_eq!(cq.push(one(), Time(8)), Ok(true), "enough, whatever the time is");
}

#[test]
fn ndk_2_holds_for_every_type_of_arm_and_under_moderation() {
    for kind in ARMS {
        let mut cq = Cq::new(100).unwrap();
        cq.push(success(1, WcOpcode::Send, false), T0).unwrap();
        assert!(cq.arm_fresh(kind, T0), "{kind:?}");
    }
    let mut cq = Cq::new(100).unwrap();
    cq.set_moderation(3, Duration::from_nanos(50));
    cq.push(success(1, WcOpcode::Send, false), Time(100)).unwrap();
    cq.push(success(2, WcOpcode::Send, false), Time(110)).unwrap();
    assert!(!cq.arm_fresh(ArmKind::Next, Time(120)), "two of three");
    assert_eq!(cq.poll_timeout(), Some(Time(150)));
    assert!(!cq.arm_fresh(ArmKind::Next, Time(121)), "the same two");
    assert_eq!(cq.push(success(3, WcOpcode::Send, false), Time(130)), Ok(true));
}

#[test]
fn ndk_1_an_overrun_satisfies_an_arm_of_any_type_but_not_one_of_verbs() {
    for kind in ARMS {
        let mut cq = Cq::new(1).unwrap();
        assert!(!cq.arm_fresh(kind, T0));
        let fired = cq.push(success(1, WcOpcode::Send, false), T0).unwrap();
        assert_eq!(fired, kind == ArmKind::Next);
        cq.mark_notified();
        assert!(!cq.arm_fresh(kind, T0));
        assert!(cq.push(success(2, WcOpcode::Send, false), T0).unwrap_err().fire, "{kind:?}");
        assert!(!cq.push(success(3, WcOpcode::Send, false), T0).unwrap_err().fire, "once an arm");
        assert!(cq.arm_fresh(kind, T0), "it is still broken");
        cq.arm(kind);
        assert!(!cq.push(success(4, WcOpcode::Send, false), T0).unwrap_err().fire);
    }
}

#[test]
fn ext_4_what_no_event_will_speak_of() {
    let mut cq = Cq::new(100).unwrap();
    let add = |cq: &mut Cq, n: u64| {
        (0..n).for_each(|i| _ = cq.push(success(i, WcOpcode::Recv, false), T0).unwrap())
    };
    assert_eq!(cq.unannounced(), 0);
    add(&mut cq, 2);
    assert_eq!(cq.unannounced(), 2, "never armed");
    add(&mut cq, 8);
    cq.arm(ArmKind::Solicited);
    assert_eq!(cq.unannounced(), 10);
    assert!(!cq.has_missed(), "an arm for solicited ones leaves the others for later");
    // Two completions are polled, as by a program that returns early.
    cq.pop();
    cq.pop();
    assert_eq!(cq.unannounced(), 8);
    // A completion after the arm without a match is no lost wake-up, because the arm excludes it.
    add(&mut cq, 3);
    assert_eq!(cq.unannounced(), 8);
    (0..9).for_each(|_| _ = cq.pop());
    assert_eq!((cq.unannounced(), cq.len()), (0, 2));
    // The arm fired, its event was read, and the program did not arm again.
    cq.arm(ArmKind::Next);
    add(&mut cq, 1);
    assert_eq!((cq.armed(), cq.unannounced()), (None, 3));
    assert!(cq.has_missed());
}

#[derive(Clone, Debug)]
enum Step {
    Arm(usize),
    ArmPersistent(usize),
    ArmFresh(usize),
    MarkNotified,
    Disarm,
    Push(usize),
    Pop,
    Purge(Qpn),
    Advance(u64),
    Moderate(u32, u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3usize).prop_map(Step::Arm),
        1 => (0..3usize).prop_map(Step::ArmPersistent),
        2 => (0..3usize).prop_map(Step::ArmFresh),
        1 => Just(Step::MarkNotified),
        1 => Just(Step::Disarm),
        6 => (0..samples().len()).prop_map(Step::Push),
        2 => Just(Step::Pop),
        1 => (4..6u32).prop_map(Step::Purge),
        3 => (0..30u64).prop_map(Step::Advance),
        1 => (0..4u32, 0..40u64).prop_map(|(c, p)| Step::Moderate(c, p)),
    ]
}

/// The naive model: remembers every arm and every completion since the last event, and decides from
/// the whole history.
#[derive(Default)]
struct Model {
    ring: Vec<u64>,
    /// Arms since the last event, and matching completions by time.
    arms: Vec<ArmKind>,
    moderated: Vec<u64>,
    count: u32,
    period: u64,
    persistent: bool,
    ndk: bool,
    /// For each completion in the ring: its time, and whether the last callback and the last arm
    /// arrived after it.
    facts: Vec<(u64, bool, bool)>,
}

impl Model {
    fn due(&self, now: u64) -> bool {
        let Some(first) = self.moderated.first() else { return false };
        match (self.count, self.period) {
            (0, 0) => true,
            (n, 0) => self.moderated.len() >= n as usize,
            (0, p) => now >= first + p,
            (n, p) => self.moderated.len() >= n as usize || now >= first + p,
        }
    }
    fn fire(&mut self, now: u64) -> bool {
        let due = self.due(now);
        if due {
            self.moderated.clear();
            if !self.persistent {
                self.disarm();
            }
        }
        due
    }
    fn disarm(&mut self) {
        self.arms.clear();
        self.moderated.clear();
        (self.persistent, self.ndk) = (false, false);
    }
    fn arm(&mut self, kind: ArmKind) {
        self.arms.push(kind);
        self.facts.iter_mut().for_each(|f| f.2 = true);
    }
    /// NDK-2, from the history.
    fn arm_fresh(&mut self, kind: ArmKind, now: u64, broken: bool) -> bool {
        self.arm(kind);
        self.ndk = true;
        let fresh: Vec<u64> = self.facts.iter().filter(|f| !f.1).map(|f| f.0).collect();
        if fresh.len() > self.moderated.len() {
            self.moderated = fresh;
        }
        self.fire(now) || (broken && self.overrun())
    }
    fn overrun(&mut self) -> bool {
        let fires = self.ndk && !self.arms.is_empty();
        if fires {
            self.disarm();
        }
        fires
    }
    fn unannounced(&self) -> usize {
        self.facts.iter().filter(|f| self.arms.is_empty() || f.2).count()
    }
}

proptest! {
    #[test]
    fn agrees_with_the_naive_model(steps in prop::collection::vec(step(), 1..120)) {
        const DEPTH: usize = 12;
        let (mut cq, mut model, mut now) = (Cq::new(DEPTH as u32).unwrap(), Model::default(), 0u64);
        let mut broken = false;
        for (i, step) in steps.into_iter().enumerate() {
            match step {
                Step::Arm(k) => {
                    cq.arm(ARMS[k]);
                    model.arm(ARMS[k]);
                }
                Step::ArmPersistent(k) => {
                    cq.arm_persistent(ARMS[k]);
                    model.arm(ARMS[k]);
                    model.persistent = true;
                }
                Step::ArmFresh(k) => {
                    prop_assert_eq!(cq.arm_fresh(ARMS[k], Time(now)), model.arm_fresh(ARMS[k], now, broken));
                }
                Step::MarkNotified => {
                    cq.mark_notified();
                    model.facts.iter_mut().for_each(|f| f.1 = true);
                }
                Step::Disarm => {
                    cq.disarm();
                    model.disarm();
                }
                Step::Push(k) => {
                    let (mut completion, class) = samples()[k].clone();
                    completion.wr_id = i as u64;
                    let pushed = cq.push(completion, Time(now));
                    broken |= model.ring.len() == DEPTH;
                    prop_assert_eq!(cq.is_broken(), broken);
                    prop_assert_eq!(pushed.is_err(), broken);
                    if let Err(overrun) = &pushed {
                        prop_assert_eq!(overrun.fire, model.overrun());
                    }
                    if let Ok(fired) = pushed {
                        model.ring.push(i as u64);
                        model.facts.push((now, false, false));
                        let matches = model.arms.iter().any(|a| fires(*a, class));
                        if matches {
                            model.moderated.push(now);
                        }
                        prop_assert_eq!(fired, matches && model.fire(now));
                    }
                }
                Step::Pop => {
                    let expected = (!model.ring.is_empty()).then(|| {
                        model.facts.remove(0);
                        model.ring.remove(0)
                    });
                    prop_assert_eq!(cq.pop().map(|c| c.wr_id), expected);
                }
                Step::Purge(qpn) => {
                    cq.purge(qpn);
                    if qpn == 5 {
                        model.ring.clear();
                        model.facts.clear();
                    }
                }
                Step::Advance(by) => {
                    now += by;
                    let due = cq.poll_timeout().is_some_and(|t| t <= Time(now));
                    prop_assert_eq!(due, model.due(now));
                    prop_assert_eq!(cq.handle_timeout(Time(now)), model.fire(now));
                }
                Step::Moderate(count, period) => {
                    cq.set_moderation(count, Duration::from_nanos(period));
                    (model.count, model.period) = (count, period);
                }
            }
            prop_assert_eq!(cq.peek().map(|c| c.wr_id).collect::<Vec<_>>(), model.ring.clone());
            prop_assert_eq!(cq.armed().is_some(), !model.arms.is_empty());
            prop_assert_eq!(cq.is_persistent(), model.persistent);
            prop_assert_eq!(cq.unannounced(), model.unannounced());
        }
    }
}
