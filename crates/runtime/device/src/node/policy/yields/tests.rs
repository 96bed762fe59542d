use super::*;

const TICK: Duration = Duration::from_millis(4);

/// A polling thread and a processor. `other`: the running time of another thread at a yield. Zero:
/// no other thread.
struct Poller {
    yields: Yields,
    polls: u64,
    now: Time,
    yielded: u64,
    lost: Duration,
}

const POLL: Duration = Duration::from_nanos(25);
const YIELD: Duration = Duration::from_nanos(800);

impl Poller {
    fn new() -> Self {
        Poller {
            yields: Yields::new(TICK),
            polls: 0,
            now: Time(1),
            yielded: 0,
            lost: Duration::ZERO,
        }
    }

    /// An empty poll. `true` if the thread yielded.
    fn poll(&mut self, other: Duration) -> bool {
        self.now = self.now + POLL;
        let due = self.yields.is_due(self.polls);
        if due {
            let begun = self.now;
            self.now = self.now + YIELD + other;
            self.lost += YIELD + other;
            self.yielded += 1;
            let last =
                Yielded { begun, ended: self.now, switched: !other.is_zero(), polls: self.polls };
            self.yields.yielded(last);
        }
        self.polls += 1;
        due
    }

    /// A poll with a result.
    fn find(&mut self) {
        self.now = self.now + POLL;
        self.yields.found(self.polls);
        self.polls += 1;
    }

    fn poll_for(&mut self, time: Duration, other: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.poll(other);
        }
    }
}

#[test]
fn a_thread_alone_on_its_processor_hardly_yields() {
    let mut alone = Poller::new();
    alone.poll_for(Duration::from_millis(100), Duration::ZERO);
    assert!(alone.yielded > 20, "{}", alone.yielded);
    assert!(alone.lost < Duration::from_micros(200), "{:?} of 100 ms", alone.lost);
}

#[test]
fn threads_that_give_back_take_turns_at_once() {
    let mut poller = Poller::new();
    poller.poll_for(Duration::from_millis(100), Duration::ZERO);
    // Another process comes to this processor, and yields as well.
    let last = poller.now;
    while !poller.poll(Duration::from_micros(2)) {}
    assert!(poller.now.since(last) < TICK / 2, "{:?}", poller.now.since(last));
    for _ in 0..1000 {
        let polls = poller.polls;
        while !poller.poll(Duration::from_micros(2)) {}
        assert!(poller.polls - polls <= 2 * FEWEST);
    }
    // The other process goes: the yields become rare again.
    let before = poller.lost;
    poller.poll_for(Duration::from_millis(100), Duration::ZERO);
    assert!(poller.lost - before < Duration::from_micros(200));
}

#[test]
fn a_thread_that_computes_ends_the_yields_for_a_while() {
    let mut poller = Poller::new();
    poller.poll_for(Duration::from_millis(10), Duration::ZERO);
    let (begun, yielded) = (poller.now, poller.yielded);
    poller.poll_for(Duration::from_secs(1), TICK);
    let time = poller.now.since(begun);
    assert!(poller.yielded - yielded < 10, "{} in {time:?}", poller.yielded - yielded);
    // The computing thread has ended, and other threads take turns on this processor.
    poller.poll_for(Duration::from_secs(3), Duration::from_micros(2));
    let polls = poller.polls;
    while !poller.poll(Duration::from_micros(2)) {}
    assert!(poller.polls - polls <= 2 * FEWEST);
}

#[test]
fn one_that_finds_something_again_and_again_does_not_yield() {
    let mut poller = Poller::new();
    for _ in 0..10_000 {
        for _ in 0..FEWEST - 1 {
            assert!(!poller.poll(TICK));
        }
        poller.find();
    }
    assert_eq!(poller.yielded, 0);
}

#[test]
fn a_single_switch_costs_a_few_yields() {
    let mut poller = Poller::new();
    poller.poll_for(Duration::from_millis(100), Duration::ZERO);
    while !poller.poll(Duration::from_micros(5)) {}
    let (yielded, lost) = (poller.yielded, poller.lost);
    poller.poll_for(Duration::from_millis(10), Duration::ZERO);
    assert!(poller.yielded - yielded < 30, "{}", poller.yielded - yielded);
    assert!(poller.lost - lost < Duration::from_micros(30));
}

#[test]
fn a_node_without_ticks_never_yields() {
    let yields = Yields::new(Duration::ZERO);
    yields.found(7);
    assert!(!yields.is_due(u64::MAX - 1));
}

#[test]
fn rare_polls_and_long_yields_are_counted_without_overflow() {
    let yields = Yields::new(TICK);
    let far = Time(u64::MAX >> 2);
    for _ in 0..200 {
        let last = Yielded {
            begun: far,
            ended: far + Duration::from_secs(1 << 20),
            switched: false,
            polls: 9,
        };
        yields.yielded(last);
        assert!(!yields.is_due(9));
    }
    let last = Yielded {
        begun: far,
        ended: far + Duration::from_secs(1 << 20),
        switched: true,
        polls: 10,
    };
    yields.yielded(last);
}
