//! What is hunted: the whole process, or the queues of a part.
use crate::ledger::Sends;
use crate::process::{HUNT, Hunt, HuntedPart, MAKES, PART, Story, hunt};
use crate::queue::HuntedQueue;
use adverb_choice::Schedule;
use adverb_device::cq::install;
use std::sync::atomic::Ordering;

/// Is this process hunted? The first call looks for a schedule in the environment. Queues made
/// before are not hunted.
#[must_use]
pub fn is_on() -> bool {
    let is_on = hunt().is_some();
    if is_on {
        install(HuntedQueue::make);
    }
    is_on
}

/// Makes the queues of this process choose by a schedule, whatever the environment variables say.
/// Queues made before are not hunted.
///
/// # Errors
/// The schedule, if a schedule was set, or looked for, already.
pub fn set(schedule: Schedule) -> Result<(), Schedule> {
    install(HuntedQueue::make);
    let hunt = Hunt::new(schedule, None);
    HUNT.set(Some(hunt))
        .map_err(|hunt| hunt.map(|h| h.story.lock().schedule.clone()).unwrap_or_default())
}

/// Hunts a part of this process by a schedule: the queues made by `make`. Forgets earlier points.
/// The caller makes sure that there is only one part at a time.
///
/// # Errors
/// The whole process is hunted already.
pub fn part<R>(schedule: Schedule, make: impl FnOnce() -> R) -> Result<R, AlreadyHunted> {
    if hunt().is_some() {
        return Err(AlreadyHunted);
    }
    install(HuntedQueue::make);
    let hunt = PART.get_or_init(|| Hunt::new(Schedule::default(), None));
    let part = Some(HuntedPart::default());
    *hunt.story.lock() = Story { schedule, part, ..Story::default() };
    *hunt.sends.lock() = Sends::default();
    hunt.waited.store(0, Ordering::Relaxed);
    hunt.holds.store(0, Ordering::Relaxed);
    hunt.interrupts.store(0, Ordering::Relaxed);
    MAKES.set(true);
    let made = make();
    MAKES.set(false);
    Ok(made)
}

/// Queues made by this thread from now on belong to the hunted part.
pub fn join_part() {
    MAKES.set(true);
}

/// The points and choices of the hunted part so far, and the number of completions and posts.
#[must_use]
pub fn part_so_far() -> (HuntedPart, u64) {
    let of = |h: &Hunt| Some((h.story.lock().part.clone()?, h.beats.load(Ordering::Relaxed)));
    PART.get().and_then(of).unwrap_or_default()
}

/// The whole process is hunted, so no part can be hunted separately.
#[derive(Clone, Copy, Debug)]
pub struct AlreadyHunted;
