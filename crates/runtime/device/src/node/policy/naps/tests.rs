use super::*;

const TICK: Duration = Duration::from_millis(4);
const WAKE_UP: Duration = Duration::from_micros(4);

/// A poster and the background thread in virtual time.
struct World {
    naps: Naps,
    reading: Reading,
    wake_ups: u32,
}

impl World {
    /// A world in which the background thread was told of the poster.
    fn new() -> Self {
        let mut naps = Naps::new(TICK, Costs::default());
        let reading = Reading::default();
        assert_eq!(naps.length(reading.at), None);
        naps.begin(reading);
        World { naps, reading, wake_ups: 0 }
    }

    /// Lets `time` pass. The poster runs for `ran` percent of the time, and waits for a processor
    /// for `waited` percent. Returns the early end of the watch, if any.
    fn live(&mut self, time: Duration, ran: u32, waited: u32) -> Option<u32> {
        let end = self.reading.at + time;
        while self.reading.at < end {
            let nap = self.naps.length(self.reading.at).unwrap().max(Duration::from_micros(1));
            self.wake_ups += 1;
            self.reading.at = self.reading.at + nap;
            self.reading.ran += nap * ran / 100;
            self.reading.waited += nap * waited / 100;
            self.reading.own += WAKE_UP;
            if self.naps.napped(self.reading.at) {
                let told = self.naps.judge(Some(self.reading));
                if told.is_some() {
                    return told;
                }
            }
        }
        None
    }
}

#[test]
fn a_poster_that_shares_its_processor_has_short_naps_soon() {
    let mut world = World::new();
    assert_eq!(world.live(TICK * 8, 50, 50), None);
    let nap = world.naps.length(world.reading.at).unwrap();
    assert_eq!(nap, WAKE_UP * NAP);
}

#[test]
fn naps_stay_in_bounds_whatever_a_wake_up_takes() {
    for (cost, nap) in [(Duration::ZERO, TICK / SHORTEST), (TICK, TICK / LONGEST)] {
        let mut world = World::new();
        world.live(TICK * 5, 20, 80);
        world.reading.own += cost * world.wake_ups * 10;
        while world.naps.length(world.reading.at) != Some(nap) {
            world.live(TICK, 20, 80);
            world.reading.own += cost * 100;
            if cost.is_zero() {
                world.reading.own = Duration::ZERO;
            }
        }
    }
}

#[test]
fn one_with_a_processor_of_its_own_is_hardly_disturbed() {
    let mut world = World::new();
    assert_eq!(world.live(Duration::from_secs(1), 99, 1), None);
    assert!(world.wake_ups < 20, "{}", world.wake_ups);
    // Another program comes to the poster's processor, and goes.
    assert_eq!(world.live(TICK * 40, 33, 66), None);
    assert!(world.naps.length(world.reading.at).unwrap() < TICK / 8);
    assert_eq!(world.live(TICK * 40, 99, 0), None);
    world.wake_ups = 0;
    assert_eq!(world.live(Duration::from_secs(1), 99, 0), None);
    assert!(world.wake_ups < 20, "{}", world.wake_ups);
}

#[test]
fn one_that_sleeps_is_left_alone_more_and_more() {
    let mut world = World::new();
    let mut posts = Vec::new();
    for _ in 0..12 {
        posts.extend(world.live(Duration::from_secs(1), 10, 5));
        assert_eq!(world.naps.length(world.reading.at), None);
        world.naps.begin(world.reading);
    }
    assert_eq!(posts, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
    // The poster begins to poll.
    world.live(TICK * 8, 50, 50);
    assert_eq!(world.live(TICK * 8, 0, 0), Some(1));
}

#[test]
fn one_that_has_ended_is_not_watched() {
    let mut world = World::new();
    assert_eq!(world.naps.judge(None), Some(1));
    assert_eq!(world.naps.length(world.reading.at), None);
    assert!(!world.naps.napped(Time(u64::MAX)));
}
