//! Costs of this machine, measured when the node starts. Every spin, stay and nap follows from
//! them.
use std::time::{Duration, Instant};

/// Measured calls, and measured exchanges of wake-ups.
const SAMPLES: usize = 8;
/// No further exchange begins after this time.
const LONGEST: Duration = Duration::from_micros(300);
/// Bounds of a wake-up's cost. A busy machine shows the time of other programs instead.
const WAKE_UP: [Duration; 2] = [Duration::from_micros(3), Duration::from_micros(50)];
/// The same for a system call.
const CALL: [Duration; 2] = [Duration::from_nanos(100), Duration::from_micros(2)];

/// Costs of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Costs {
    /// Time from the call that wakes a sleeping thread until the thread runs.
    pub(crate) wake_up: Duration,
    /// Duration of a system call that finds nothing.
    pub(crate) call: Duration,
    /// The process may use a single processor.
    pub(crate) alone: bool,
}

impl Default for Costs {
    /// Before the measurement, and in virtual time.
    fn default() -> Self {
        Costs { wake_up: Duration::from_micros(25), call: Duration::from_micros(1), alone: false }
    }
}

impl Costs {
    /// `call` makes a system call in vain. `exchange` wakes a sleeping thread, and sleeps until
    /// that thread wakes the caller. `false`: the thread gave no answer.
    pub(super) fn measure(mut call: impl FnMut(), mut exchange: impl FnMut() -> bool) -> Self {
        let begun = Instant::now();
        let calls = (0..SAMPLES).map(|_| {
            let from = Instant::now();
            call();
            from.elapsed()
        });
        let calls = calls.collect();
        let exchanges = (0..SAMPLES).map_while(|_| {
            let from = Instant::now();
            (begun.elapsed() < LONGEST && exchange()).then(|| from.elapsed())
        });
        Costs::of(calls, exchanges.collect())
    }

    /// For a process that may use a single processor, of a machine with `processors`. Its own
    /// threads wake each other in a short time, which says nothing of threads on other processors.
    pub(super) fn on_one_of(self, processors: usize) -> Self {
        let wake_up = if processors > 1 { Costs::default().wake_up } else { self.wake_up };
        Costs { wake_up, alone: true, ..self }
    }

    /// A pause of a thread that spins. The awaited thread may need the same processor.
    pub(crate) fn pause(self) {
        if self.alone { std::thread::yield_now() } else { std::hint::spin_loop() }
    }

    /// How soon another thread that has work runs. On a single processor a wake-up is quick, and
    /// the thread runs when others have had their turns.
    pub(crate) fn turn(self) -> Duration {
        if self.alone { self.wake_up.max(Costs::default().wake_up) } else { self.wake_up }
    }

    /// The costs behind these durations.
    fn of(calls: Vec<Duration>, exchanges: Vec<Duration>) -> Self {
        let usual = Costs::default();
        let within = |cost: Option<Duration>, usual, [least, most]: [Duration; 2]| {
            cost.unwrap_or(usual).clamp(least, most)
        };
        let wake_up = typical(exchanges).map(|both| both / 2);
        Costs {
            wake_up: within(wake_up, usual.wake_up, WAKE_UP),
            call: within(typical(calls), usual.call, CALL),
            alone: false,
        }
    }
}

/// The median of the smaller half. Other programs make a duration longer, and never shorter.
fn typical(mut took: Vec<Duration>) -> Option<Duration> {
    took.sort_unstable();
    took.get(took.len() / 4).copied()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn us(durations: &[u64]) -> Vec<Duration> {
        durations.iter().map(|us| Duration::from_micros(*us)).collect()
    }

    #[test]
    fn other_programs_do_not_count() {
        let costs = Costs::of(us(&[1, 1, 900, 1]), us(&[44, 8000, 40, 42, 8000, 8000, 8000, 8000]));
        assert_eq!(costs.wake_up, Duration::from_micros(22));
        assert_eq!(costs.call, Duration::from_micros(1));
    }

    #[test]
    fn costs_have_bounds_and_a_usual_value() {
        assert_eq!(Costs::of(Vec::new(), Vec::new()), Costs::default());
        let [least, most] =
            [us(&[0; SAMPLES]), us(&[8000; SAMPLES])].map(|took| Costs::of(took.clone(), took));
        assert_eq!((least.wake_up, least.call), (WAKE_UP[0], CALL[0]));
        assert_eq!((most.wake_up, most.call), (WAKE_UP[1], CALL[1]));
        let (usual, alone) = (Costs::default().wake_up, least.on_one_of(1));
        assert_eq!([least.turn(), alone.turn()], [WAKE_UP[0], usual]);
        assert_eq!([alone.wake_up, least.on_one_of(2).wake_up], [WAKE_UP[0], usual]);
    }

    #[test]
    fn a_measurement_ends_without_an_answer() {
        let (mut calls, mut exchanges) = (0, 0);
        let costs = Costs::measure(
            || calls += 1,
            || {
                exchanges += 1;
                false
            },
        );
        assert_eq!((calls, exchanges <= 1), (SAMPLES, true));
        assert_eq!(costs.wake_up, Costs::default().wake_up);
    }
}
