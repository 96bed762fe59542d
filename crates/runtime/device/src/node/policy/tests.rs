use super::outside::ARMS;
use super::yields::Yielded;
use super::*;

const SLEEPS: Program = Program { sleeps: true, until: Time::ZERO };

fn at(us: u64) -> Time {
    Time(us * 1000)
}

/// A program and the background thread in virtual time. The thread wakes when its stay is over, or
/// when a packet comes while the thread watches the sockets.
struct World {
    policy: Policy,
    pace: Pace,
    now: Time,
    /// The program is in the middle of copying long payloads.
    drives: bool,
    /// Time of the thread's next wake-up by itself.
    wakes_at: Option<Time>,
    turns: Vec<(Time, Turn)>,
}

impl World {
    fn new() -> Self {
        World {
            policy: Policy::new(Duration::from_millis(4)),
            pace: Pace::default(),
            now: at(1),
            drives: false,
            wakes_at: None,
            turns: Vec::new(),
        }
    }

    /// The thread wakes, finds work or none, and sleeps again.
    fn thread(&mut self, work: bool) {
        let woke = self.policy.shown();
        if self.pace.sees_polls(woke, self.policy.program()) {
            self.policy.outside.ends();
        }
        let turn = self.pace.wakes(woke, [self.drives, false], self.policy.program(), || self.now);
        if let Turn::Receive { .. } = turn {
            self.pace.received(work, [woke, self.policy.shown()], self.policy.program());
        }
        self.turns.push((self.now, turn));
        let away = self.pace.away();
        self.wakes_at = (!away.is_zero()).then(|| self.now + away);
        self.policy.set_thread(match away.is_zero() {
            true => Thread::Asleep { until: u64::MAX },
            false => Thread::Away,
        });
    }

    /// Time goes on by a microsecond, with or without a packet. `true` if the thread woke.
    fn step(&mut self, packet: bool) -> bool {
        self.now = self.now + Duration::from_micros(1);
        let wakes = self.wakes_at.map_or(packet, |at| at <= self.now);
        if wakes {
            // The polling program takes packets that arrived earlier.
            self.thread(packet && self.wakes_at.is_none());
        }
        wakes
    }
}

#[test]
fn a_program_that_arms_without_waiting_sleeps_by_itself() {
    let policy = Policy::new(Duration::from_millis(4));
    for n in 1..=ARMS {
        assert!(!policy.outside.arms(false, || 0), "arm {n}");
    }
    assert!(policy.outside.arms(false, || 0));
    assert!(policy.program().sleeps);
    policy.outside.ends();
    assert!(!policy.program().sleeps);
}

#[test]
fn waits_in_get_event_calls_keep_the_arms_from_adding_up() {
    let policy = Policy::new(Duration::from_millis(4));
    for n in 0..100 {
        policy.outside.arms(false, || 0);
        policy.outside.ends();
        policy.given(at(n));
        policy.looks_at_queue(|| at(n));
    }
    assert!(!policy.program().sleeps);
}

#[test]
fn a_program_that_arms_what_is_armed_does_not_sleep() {
    let policy = Policy::new(Duration::from_millis(4));
    // A progress thread: it polls, arms, looks at the descriptor, and begins again. Sometimes an
    // event comes.
    for n in 0..10_000 {
        assert!(!policy.outside.arms(n % 50 != 0, || 7), "arm {n}");
        assert!(!policy.program().sleeps);
    }
    // The thread stops spinning and sleeps on the descriptor, each time until an event has come.
    for _ in 0..=ARMS {
        policy.outside.arms(false, || 0);
    }
    assert!(policy.program().sleeps);
    // A second arm before each sleep changes nothing.
    for n in 0..1000 {
        policy.outside.arms(n % 2 == 1, || 7);
        assert!(policy.program().sleeps);
    }
    // The thread arms whenever something else wakes it, and sleeps again.
    for n in 0..1000 {
        policy.outside.arms(true, || 100 + n);
        assert!(policy.program().sleeps);
    }
    // The thread spins again.
    for _ in 0..2 * ARMS {
        policy.outside.arms(true, || 7);
    }
    assert!(!policy.program().sleeps);
}

#[test]
fn one_that_arms_twice_before_each_sleep_sleeps_by_itself() {
    let policy = Policy::new(Duration::from_millis(4));
    for n in 0..4 * ARMS {
        policy.outside.arms(n % 2 == 1, || 7);
    }
    assert!(policy.program().sleeps);
}

#[test]
fn the_thread_is_told_of_the_first_post_and_then_as_it_says() {
    let policy = Policy::new(Duration::from_millis(4));
    assert_eq!(policy.take_poster(), None);
    assert!(policy.posts());
    policy.set_poster(17);
    assert!(!policy.posts());
    assert_eq!(policy.take_poster(), Some(17));
    assert_eq!(policy.take_poster(), None);
    policy.tell_after(3);
    assert_eq!([(); 5].map(|()| policy.posts()), [false, false, true, false, false]);
    assert!(!Policy::new(Duration::ZERO).posts(), "nothing is watched in virtual time");
}

#[test]
fn an_event_gives_the_sockets_to_the_program_for_a_while() {
    let policy = Policy::new(Duration::from_millis(4));
    policy.given(at(0));
    assert!(policy.program().has_sockets(at(9_999)));
    assert!(!policy.program().has_sockets(at(10_000)));
    policy.looks_at_queue(|| at(5_000));
    assert!(policy.program().has_sockets(at(5_199)));
    assert!(!policy.program().has_sockets(at(5_200)));
    policy.looks_at_queue(|| at(5_100));
    assert!(!policy.program().has_sockets(at(5_200)), "only the first look counts");
    policy.outside.task_waits();
    policy.given(at(6_000));
    assert!(!policy.program().has_sockets(at(6_000)), "nobody else looks then");
}

#[test]
fn a_program_that_spins_has_its_processor_to_itself() {
    let mut world = World::new();
    world.thread(false);
    let mut woken = 0;
    for _ in 0..100_000 {
        world.policy.drives();
        woken += u32::from(world.step(true));
    }
    assert_eq!(world.pace.away(), LONGEST_AWAY);
    assert!(woken < 120, "{woken} wake-ups in 100 ms");
    assert_eq!(world.turns.last().map(|(_, turn)| *turn), Some(Turn::Aside));
}

#[test]
fn a_program_that_takes_turns_on_its_processor_has_the_sockets_to_itself() {
    let mut world = World::new();
    let mut received = 0;
    for n in 0..100_000 {
        // A few polls in a turn of 3 us, then a yield; a message comes in each turn.
        world.policy.drives();
        if n % 3 == 0 {
            let (begun, ended) = (world.now, world.now + Duration::from_micros(1));
            let polls = world.policy.looks();
            world.policy.yields.yielded(Yielded { begun, ended, switched: true, polls });
        }
        world.step(n % 3 == 0);
        received += usize::from(
            matches!(world.turns.last(), Some((at, Turn::Receive { .. })) if *at == world.now),
        );
    }
    assert!(received < 3, "the thread received {received} times");
    assert_eq!(world.pace.away(), LONGEST_AWAY);
}

#[test]
fn a_program_that_stops_polling_waits_a_millisecond_for_the_thread() {
    let mut world = World::new();
    world.thread(false);
    for _ in 0..50_000 {
        world.policy.drives();
        world.step(true);
    }
    let stopped = world.now;
    while world.wakes_at.is_some() {
        assert!(world.now.since(stopped) < LONGEST_AWAY * 3, "the thread is still away");
        world.step(false);
    }
    let received = |(when, turn): &(Time, Turn)| {
        *when > stopped && matches!(turn, Turn::Receive { rings: true })
    };
    assert!(world.turns.iter().any(received));
    assert!(!world.policy.thread_is_away());
}

#[test]
fn a_program_that_sleeps_by_itself_never_finds_the_thread_away() {
    let mut world = World::new();
    world.policy.outside.task_waits();
    for n in 0..10_000 {
        // A look now and then, as programs have in an event loop.
        if n % 3 == 0 {
            world.policy.drives();
        }
        world.thread(n % 7 == 0);
        assert_eq!(world.pace.away(), Duration::ZERO);
        assert!(matches!(world.turns.last(), Some((_, Turn::Receive { rings: true }))));
    }
}

#[test]
fn spins_in_vain_become_rare_and_one_that_pays_brings_them_back() {
    let mut pace = Pace::default();
    let mut spins = 0;
    for _ in 0..10_000 {
        if pace.spins() {
            spins += 1;
            pace.spun(false);
        }
    }
    assert!((10..60).contains(&spins), "{spins} spins");
    while !pace.spins() {}
    pace.spun(true);
    assert!(pace.spins());
}

#[test]
fn whoever_leaves_work_knows_whether_the_thread_sees_it() {
    let policy = Policy::new(Duration::from_millis(4));
    assert!(!policy.thread_sleeps() && !policy.thread_sleeps_past(at(0)));
    policy.set_thread(Thread::Asleep { until: at(10).0 });
    assert!(policy.thread_sleeps() && policy.thread_sleeps_past(at(9)));
    assert!(!policy.thread_sleeps_past(at(10)));
    // Even one that is to wake at once has announced itself.
    policy.set_thread(Thread::Asleep { until: 0 });
    assert!(policy.thread_sleeps());
    policy.set_thread(Thread::Asleep { until: u64::MAX });
    assert!(policy.thread_sleeps_past(Time(u64::MAX >> 2)));
    // A polling program serves the deadlines.
    policy.set_thread(Thread::Away);
    assert!(policy.thread_sleeps() && !policy.thread_sleeps_past(at(0)));
    policy.set_thread(Thread::Awake);
    assert!(!policy.thread_sleeps());
}

/// A program that receives much, as in long copies, makes few calls.
#[test]
fn a_program_in_the_middle_of_long_copies_has_the_rings_to_itself() {
    let mut world = World::new();
    world.drives = true;
    world.thread(true);
    for n in 0..100_000 {
        if n % 400 == 0 {
            world.policy.drives();
        }
        world.step(true);
    }
    assert!(world.turns.iter().all(|(_, turn)| *turn == Turn::Aside));
    assert_eq!(world.pace.away(), LONGEST_AWAY);
}

/// The thread won the race for the work once; the program polls in vain meanwhile.
#[test]
fn a_thread_that_takes_work_from_a_program_that_polls_goes_away() {
    let mut pace = Pace::default();
    let polls = Shown { looks: SPINS, ..Shown::default() };
    pace.received(true, [Shown::default(), polls], Program::default());
    assert_eq!(pace.away(), pace.first_away());
    pace.received(true, [polls, polls], Program::default());
    assert_eq!(pace.away(), Duration::ZERO, "work of its own");
    pace.received(true, [polls, Shown { looks: 1000, ..Shown::default() }], SLEEPS);
    assert_eq!(pace.away(), Duration::ZERO, "nobody else works");
}

/// The thread and the program share a processor. Each packet wakes the thread, which takes the
/// packet before the program's next poll finds it.
#[test]
fn a_thread_that_takes_each_packet_of_a_program_that_polls_goes_away() {
    let mut world = World::new();
    let mut taken = 0;
    for n in 0..100_000_u64 {
        for _ in 0..20 {
            world.policy.drives();
        }
        let packet = n % 10 == 0;
        let asleep = world.wakes_at.is_none();
        taken += u32::from(world.step(packet) && packet && asleep);
    }
    assert!(taken < 5, "the thread took {taken} packets");
    assert_eq!(world.pace.away(), LONGEST_AWAY);
}

/// Wake-ups that are far apart say nothing about polls in between.
#[test]
fn a_program_that_polls_now_and_then_keeps_the_thread_at_the_sockets() {
    let mut world = World::new();
    for n in 0..100_000_u64 {
        if n % 50 == 0 {
            world.policy.drives();
        }
        world.step(n % 5000 == 0);
    }
    assert!(world.turns.iter().all(|(_, turn)| matches!(turn, Turn::Receive { rings: true })));
}

/// A program armed queues and slept on their descriptors. Now it polls, and arms no queue.
#[test]
fn a_program_that_polls_does_not_count_as_asleep_for_ever() {
    let mut world = World::new();
    for _ in 0..=ARMS {
        world.policy.outside.arms(false, || 0);
    }
    let (mut taken, mut sleeps) = (0, 0);
    for n in 0..100_000_u64 {
        world.policy.drives();
        let asleep = world.wakes_at.is_none();
        taken += u32::from(world.step(n % 40 == 0) && asleep);
        sleeps += u32::from(world.policy.program().sleeps);
    }
    assert!(taken < 100, "the thread took {taken} packets of {sleeps}");
    assert_eq!(world.pace.away(), LONGEST_AWAY);
}

/// An event loop polls many times for each event. The arm before its sleep shows that it sleeps.
#[test]
fn a_program_that_arms_before_each_sleep_counts_as_asleep() {
    let mut world = World::new();
    for n in 0..100_000_u64 {
        if n % 40 == 0 {
            (0..100).for_each(|_| _ = world.policy.drives());
            world.policy.outside.arms(false, || 0);
        }
        world.step(n % 40 == 20);
    }
    assert!(world.policy.program().sleeps);
    assert!(world.wakes_at.is_none());
}

/// Polls for 30 µs in each message, waits for its memory to change at other times, and makes no
/// call there. Returns the delays of the messages.
fn waits_for_memory(world: &mut World) -> Vec<Duration> {
    let (mut arrived, mut next, mut polls_until) = (None, at(100), at(0));
    let mut delays = Vec::new();
    while delays.len() < 2000 && world.now < at(4_000_000) {
        world.now = world.now + Duration::from_micros(1);
        if world.now < polls_until {
            (0..2).for_each(|_| _ = world.policy.drives());
        }
        let arrives = arrived.is_none() && world.now >= next;
        if arrives {
            arrived = Some(world.now);
        }
        if world.wakes_at.map_or(arrives, |at| at <= world.now) {
            world.thread(arrived.is_some());
            let received = matches!(world.turns.last(), Some((_, Turn::Receive { .. })));
            if received && let Some(since) = arrived.take() {
                delays.push(world.now.since(since));
                polls_until = world.now + Duration::from_micros(30);
                next = polls_until + Duration::from_micros(30);
            }
        }
    }
    delays
}

#[test]
fn a_program_that_waits_for_its_memory_finds_the_thread_at_the_sockets() {
    let mut world = World::new();
    let mut delays = waits_for_memory(&mut world);
    assert_eq!(delays.len(), 2000, "the last at {:?}", world.now);
    delays.sort();
    let median = delays[delays.len() / 2];
    assert!(median < world.pace.first_away(), "{median:?}");
}

/// The states and stays of a program that polls, in wake-ups.
#[test]
fn times_follow_the_cost_of_a_wake_up() {
    let [fast, slow] = [5, 25].map(|us| {
        let wake_up = Duration::from_micros(us);
        let costs = Costs { wake_up, ..Costs::default() };
        let policy = Policy::new(Duration::from_millis(4));
        policy.set_costs(costs);
        policy.given(at(0));
        policy.looks_at_queue(|| at(0));
        let has_sockets = |n: &u32| policy.program().has_sockets(at(0) + wake_up * *n);
        let works = (0..1000).take_while(has_sockets).count();
        let (mut pace, mut shown) = (Pace::new(costs), Shown::default());
        let stays = [(); 4].map(|()| {
            shown.looks += SPINS;
            pace.wakes(shown, [false; 2], Program::default(), || at(0));
            pace.away().as_nanos() / wake_up.as_nanos()
        });
        (works, stays)
    });
    assert_eq!(fast, slow);
    assert_eq!(slow, (WORKS as usize, [2, 4, 8, 16]));
}
