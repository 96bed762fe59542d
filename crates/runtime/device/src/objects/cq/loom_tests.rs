//! CQN-12 by model checking. loom runs the interleavings of these threads that the memory model
//! allows, on the production code ([`NotifyCore`], [`EventList`]). Only the descriptor is a model:
//! a count to sleep on.
//!
//! After a lost wake-up a thread sleeps for ever, which loom reports as a deadlock. Each test names
//! a change of the code that makes the test fail. Each of these changes was made, and the test was
//! seen to fail.
//!
//! Run by `make loom`. Each model limits the preemptions in an execution: switches away from a
//! thread that could continue. Switches at a lock, a sleep or an end are free. Destroying is
//! explored without a limit. Three threads have up to five preemptions, and more or larger threads
//! three or four. `LOOM_MAX_PREEMPTIONS` replaces all limits.
use super::notify::{ArmSite, Armed, Closed, NotifyCore};
use crate::event_list::{EventList, Tokens};
use adverb_engine::cq::arm::ArmKind;
use adverb_engine::{Completion, Time, WcOpcode};
use loom::sync::{Condvar, Mutex};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The descriptor: a count, and threads that sleep until it is readable.
#[derive(Default)]
struct Count {
    count: Mutex<usize>,
    readable: Condvar,
}

impl Tokens for Count {
    fn give(&self) {
        *self.count.lock().unwrap() += 1;
        self.readable.notify_all();
    }
    fn take(&self) {
        let mut count = self.count.lock().unwrap();
        *count = count.checked_sub(1).expect("a token for each event");
    }
}

impl Count {
    /// `poll` without a timeout.
    fn sleep(&self) {
        let mut count = self.count.lock().unwrap();
        while *count == 0 {
            count = self.readable.wait(count).unwrap();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Cq,
    /// Made by the test to end the waiting thread.
    Stop,
}

/// A queue with its channel, and the polled completions. `polled` and `events` are records of the
/// test and not part of the model: a set of work requests, one bit each, and a number.
struct World {
    cq: NotifyCore,
    channel: EventList<Event, Count>,
    polled: AtomicU64,
    events: AtomicU64,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(World {
            cq: NotifyCore::new(8).unwrap(),
            channel: EventList::new(Count::default()),
            polled: AtomicU64::new(0),
            events: AtomicU64::new(0),
        })
    }

    /// The engine's work for a completion: a receive, solicited or not.
    fn add(&self, wr_id: u64, solicited: bool) {
        let completion = Completion { solicited, ..Completion::success(wr_id, 5, WcOpcode::Recv) };
        let notify = |_: &adverb_engine::Cq| {
            self.events.fetch_add(1, Relaxed);
            self.channel.push(Event::Cq);
        };
        self.cq.push(completion, Time(1), notify, |_| {}).unwrap();
    }

    /// Polls once. Each completion must be new.
    fn poll(&self) -> usize {
        let take = |c: Completion| {
            let before = self.polled.fetch_or(1 << c.wr_id, Relaxed);
            assert_eq!(before & (1 << c.wr_id), 0, "polled twice");
        };
        self.cq.poll(1, take).unwrap()
    }

    fn arm(&self, kind: ArmKind) -> Result<Armed, Closed> {
        self.cq.arm(ArmSite::Unknown, |cq| cq.arm(kind))
    }

    fn poll_until_empty(&self) {
        while self.poll() > 0 {}
    }

    fn has(&self, wr_ids: u64) -> bool {
        self.polled.load(Relaxed) & wr_ids == wr_ids
    }

    fn get_event(&self) -> Event {
        loop {
            if let Some(event) = self.channel.try_pop(|_| {}) {
                return event;
            }
            self.channel.tokens.sleep();
        }
    }

    /// The documented loop, until all of `wr_ids` were polled by any thread. (Acknowledging only
    /// counts.)
    fn follow(&self, kind: ArmKind, wr_ids: u64) {
        while !self.has(wr_ids) && self.get_event() == Event::Cq {
            self.arm(kind).unwrap();
            self.poll_until_empty();
        }
    }

    /// All threads have ended: every completion can be polled, and there is a token for each event
    /// left.
    fn check_end(&self, wr_ids: u64) {
        self.poll_until_empty();
        assert!(self.has(wr_ids), "a completion was lost");
        assert_eq!(self.cq.waiting(), 0);
        while self.channel.try_pop(|_| {}).is_some() {}
        assert_eq!(*self.channel.tokens.count.lock().unwrap(), 0);
    }
}

fn adder(world: &Arc<World>, wr_ids: &'static [u64]) -> JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || wr_ids.iter().for_each(|&id| world.add(id, false)))
}

fn model(preemptions: Option<usize>, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(preemptions);
    builder.check(test);
}

/// CQN-12. The queue is armed before any completion is added, as in the manual page's example.
///
/// Fails if `waiting` is stored after the event was made and the lock released.
#[test]
fn loom_cqn_12_two_adders_wake_one_thread_that_armed_before() {
    model(Some(5), || {
        let world = World::new();
        world.arm(ArmKind::Next).unwrap();
        let adders = [adder(&world, &[0]), adder(&world, &[1])];
        world.follow(ArmKind::Next, 0b11);
        adders.into_iter().for_each(|a| a.join().unwrap());
        world.check_end(0b11);
    });
}

/// CQN-7. A thread that has read an event finds the event's completion by the next poll, without
/// arming first.
///
/// Fails if `waiting` is stored after the event was made, even under the lock.
#[test]
fn loom_cqn_7_an_event_finds_its_completion() {
    model(None, || {
        let world = World::new();
        world.arm(ArmKind::Next).unwrap();
        let adder = adder(&world, &[0]);
        assert_eq!(world.get_event(), Event::Cq);
        assert_eq!(world.poll(), 1, "an event came before its completion");
        adder.join().unwrap();
        world.check_end(0b1);
    });
}

/// CQN-12. The first arm races too. Completions before the arm make no event (CQN-3), so the loop
/// starts with a poll.
///
/// Fails if the arm is set outside of the lock, as an atomic that `push` reads.
#[test]
fn loom_cqn_12_two_adders_race_the_first_arm() {
    model(Some(5), || {
        let world = World::new();
        let adders = [adder(&world, &[0]), adder(&world, &[1])];
        world.arm(ArmKind::Next).unwrap();
        world.poll_until_empty();
        world.follow(ArmKind::Next, 0b11);
        adders.into_iter().for_each(|a| a.join().unwrap());
        world.check_end(0b11);
    });
}

/// CQN-12. Another thread polls and takes completions away from the waiting thread. The waiting
/// thread then finds the queue empty (CQN-8), and still never sleeps while a completion is left.
///
/// Fails if a poll stores `waiting` after releasing the lock.
#[test]
fn loom_cqn_12_two_adders_and_another_poller() {
    model(Some(3), || {
        let world = World::new();
        world.arm(ArmKind::Next).unwrap();
        let adders = [adder(&world, &[0]), adder(&world, &[1])];
        let other = world.clone();
        let poller = thread::spawn(move || _ = other.poll());
        world.follow(ArmKind::Next, 0b11);
        adders.into_iter().chain([poller]).for_each(|t| t.join().unwrap());
        world.check_end(0b11);
    });
}

/// CQN-12. Two threads wait on one channel and both follow the loop. Each event goes to one thread
/// (CHN-3).
///
/// Fails if `push` gives the token after releasing the list's lock.
#[test]
fn loom_cqn_12_two_threads_follow_the_loop() {
    model(Some(4), || {
        let world = World::new();
        world.arm(ArmKind::Next).unwrap();
        let adder = adder(&world, &[0, 1]);
        let other = world.clone();
        let follow = |world: &World| {
            world.follow(ArmKind::Next, 0b11);
            world.channel.push(Event::Stop);
        };
        let second = thread::spawn(move || follow(&other));
        follow(&world);
        adder.join().unwrap();
        second.join().unwrap();
        world.check_end(0b11);
    });
}

/// CQN-12 with CQN-2: the queue is armed for solicited completions. An ordinary completion makes no
/// event, and a solicited completion makes an event, in any order.
///
/// Fails if a poll stores `waiting` after releasing the lock, or if the arm is set outside of the
/// lock.
#[test]
fn loom_cqn_12_solicited_arm_among_ordinary_completions() {
    model(Some(5), || {
        let world = World::new();
        let ordinary = adder(&world, &[0]);
        let other = world.clone();
        let solicited = thread::spawn(move || other.add(1, true));
        world.arm(ArmKind::Solicited).unwrap();
        world.poll_until_empty();
        world.follow(ArmKind::Solicited, 0b10);
        ordinary.join().unwrap();
        solicited.join().unwrap();
        assert!(world.events.load(Relaxed) <= 1, "an event for the ordinary completion");
        world.check_end(0b11);
    });
}

/// CQN-12 with CQN-6: two threads set different arms while completions come. *next* is never lost
/// to *solicited*.
///
/// Fails if an arm replaces the pending arm instead of combining with it.
#[test]
fn loom_cqn_12_next_and_solicited_arms_race() {
    model(Some(5), || {
        let world = World::new();
        let adder = adder(&world, &[0, 1]);
        let other = world.clone();
        let armer = thread::spawn(move || other.arm(ArmKind::Solicited).unwrap());
        world.arm(ArmKind::Next).unwrap();
        world.poll_until_empty();
        world.follow(ArmKind::Next, 0b11);
        adder.join().unwrap();
        armer.join().unwrap();
        world.check_end(0b11);
    });
}

/// CQN-12 with CHN-5 and CHN-4: destroying races an adder and a reader. Afterwards no event is left
/// or made, and arming is refused (CQN-10). An event taken by the reader was counted as read before
/// destroying looked.
///
/// Fails if the event is made after the queue's lock was released, or if a closed queue still adds.
/// Also fails if events are removed before the queue is closed, or if `read` is called after the
/// list's lock was released.
#[test]
fn loom_cqn_12_no_event_after_close() {
    model(None, || {
        let world = World::new();
        let reads = Arc::new(loom::sync::atomic::AtomicUsize::new(0));
        world.arm(ArmKind::Next).unwrap();
        let adder = adder(&world, &[0, 1]);
        let (other, counted) = (world.clone(), reads.clone());
        let reader = thread::spawn(move || {
            let got = other.channel.try_pop(|_| _ = counted.fetch_add(1, Relaxed));
            let _ = other.arm(ArmKind::Next);
            usize::from(got.is_some())
        });
        world.cq.close();
        world.channel.remove(|e| *e == Event::Cq);
        let read = reads.load(Relaxed);
        assert!(world.channel.try_pop(|_| {}).is_none());
        assert_eq!(world.arm(ArmKind::Next), Err(Closed));
        adder.join().unwrap();
        assert_eq!(reader.join().unwrap(), read, "read but not counted when destroying looked");
        assert!(world.channel.try_pop(|_| {}).is_none(), "an event after the end");
        assert_eq!(*world.channel.tokens.count.lock().unwrap(), 0);
    });
}

/// CQN-12 with NDK-2: in NDKPI a program may poll until empty first and then arm. Completions in
/// between satisfy the arm at once. In verbs this order loses a wake-up.
///
/// Fails if `arm_fresh` forgets the completions since the last callback, or looks at them before
/// taking the lock.
#[test]
fn loom_cqn_12_ndk_2_polling_before_arming_is_safe_in_ndkpi() {
    model(Some(5), || {
        let world = World::new();
        let adders = [adder(&world, &[0]), adder(&world, &[1])];
        let arm = || {
            // The clock was read before, so completions have later times.
            let arm = |cq: &mut adverb_engine::Cq| {
                if cq.arm_fresh(ArmKind::Next, Time(0)) {
                    world.channel.push(Event::Cq);
                }
            };
            world.cq.arm(ArmSite::Unknown, arm).unwrap();
        };
        arm();
        while !world.has(0b11) {
            assert_eq!(world.get_event(), Event::Cq);
            world.cq.change(|cq| cq.mark_notified());
            world.poll_until_empty();
            if !world.has(0b11) {
                arm();
            }
        }
        adders.into_iter().for_each(|a| a.join().unwrap());
        world.check_end(0b11);
    });
}

/// CQN-12 with EXT-3: a persistent arm announces every completion. So a program that only reads
/// events and polls never sleeps while a completion waits, and a racing disarm does no harm.
///
/// Fails if a persistent arm is removed when it fires.
#[test]
fn loom_cqn_12_ext_3_a_persistent_arm_misses_nothing() {
    model(Some(4), || {
        let world = World::new();
        world.cq.arm(ArmSite::Unknown, |cq| cq.arm_persistent(ArmKind::Next)).unwrap();
        let adders = [adder(&world, &[0]), adder(&world, &[1])];
        while !world.has(0b11) {
            assert_eq!(world.get_event(), Event::Cq);
            world.poll_until_empty();
        }
        let other = world.clone();
        let disarmer = thread::spawn(move || other.cq.change(|cq| cq.disarm()));
        adders.into_iter().chain([disarmer]).for_each(|t| t.join().unwrap());
        assert_eq!(world.events.load(Relaxed), 2, "one for each");
        world.check_end(0b11);
    });
}
