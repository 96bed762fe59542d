//! Waits of the program in `poll`, `select` and `epoll_wait` that drive the device.
//!
//! A thread that waits for a channel's descriptor receives packets by itself, so that an event
//! costs one wake-up. The face asks the kernel for the program's descriptors with a time-out of
//! zero. If none is ready, the thread sleeps here, on these descriptors and on the device's, until
//! it is worth asking again. So each result is the kernel's own.
//!
//! 1. [`kinds`] says whether a descriptor gives events of the device.
//! 2. [`begin`] makes the calling thread the driver. Another thread that drives already does the
//!    work, and this thread waits on its own descriptors alone.
//! 3. [`sleep`], as often as necessary.
//! 4. [`end`].
pub use crate::descriptor::kinds::{Kind, closed, controlled, copied};
use crate::descriptor::{given, kinds};
use crate::node::{Asleep, Node};
use crate::own_id::own_id;
use adverb_os::Mask;
pub use adverb_threads::call::ReplacedCall;
use nix::errno::Errno;
use nix::libc::{POLLIN, pollfd};
use nix::time::{ClockId, clock_gettime};
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// The kinds of events that these descriptors give.
pub fn kinds(fds: impl IntoIterator<Item = RawFd>) -> Kind {
    fds.into_iter().fold(Kind::empty(), |all, fd| all | kinds::of(fd))
}

/// Drives the device once, as a poll of an empty queue does. `true`: an event may have come.
#[must_use]
pub fn look(kind: Kind) -> bool {
    let before = given();
    if let Some(node) = Node::existing() {
        if kind.contains(Kind::COMPLETIONS) {
            node.progress_polling();
        }
        if kind.contains(Kind::MANAGER) {
            node.look_for_mads();
        }
    }
    given() != before
}

/// A wait that drives.
#[derive(Debug)]
pub struct Driver {
    /// The place among the node's drivers. `None`: the thread handles MADs alone, and the
    /// background thread drives the rest.
    place: Option<usize>,
}

impl Driver {
    /// As a number for a caller in C.
    #[must_use]
    pub fn number(&self) -> i32 {
        self.place.map_or(-1, |place| place as i32)
    }

    /// The driver with this [`Driver::number`].
    #[must_use]
    pub fn numbered(number: i32) -> Self {
        Driver { place: usize::try_from(number).ok() }
    }
}

/// How the calling thread waits.
#[derive(Debug)]
pub enum Wait {
    /// It drives.
    Drives(Driver),
    /// Another thread drives. The caller calls [`end_alone`] after its wait. A thread that is
    /// cancelled there is forgotten after a while.
    Alone,
    /// There is nothing to drive.
    Idle,
}

/// The calling thread is about to wait for events of this kind.
#[must_use]
pub fn begin(kind: Kind) -> Wait {
    let Some(node) = Node::existing() else { return Wait::Idle };
    if !kind.contains(Kind::COMPLETIONS) {
        let driver = |_| Wait::Drives(Driver { place: None });
        return node.mads_fd().map_or(Wait::Idle, driver);
    }
    node.policy.outside.ends();
    let place = node.policy.drivers.enter_alone();
    place.map_or(Wait::Alone, |place| Wait::Drives(Driver { place: Some(place) }))
}

/// The calling thread waits and does not drive, because a handler may have interrupted a call that
/// holds a lock. If the thread counted as a driver, it does not any more. Takes no lock, and
/// allocates nothing.
pub fn does_not_drive() {
    if let Some(node) = Node::existing()
        && let Some(place) = node.policy.drivers.own_place()
    {
        node.drives_no_more(place);
    }
}

/// The wait of the calling thread, which did not drive, is over.
pub fn end_alone() {
    if let Some(node) = Node::existing() {
        node.policy.drivers.other_leaves();
    }
}

/// The wait of the calling thread is over.
pub fn end(driver: &Driver) {
    adverb_threads::note_end(own_id());
    if let (Some(node), Some(place)) = (Node::existing(), driver.place) {
        node.drives_no_more(place);
    }
}

/// Why [`sleep`] has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// A descriptor of the program may be ready.
    Ask,
    /// The time is over.
    Over,
    /// EINTR after a handler ran; ENOMEM.
    Failed(Errno),
}

/// Sleeps until one of the program's descriptors may be ready. The last entry of `polls` is for
/// this function. `until`: nanoseconds of the monotonic clock. `mask`: signals that are blocked
/// during the sleep. `call`: the system call of the program. A cancellation point.
pub fn sleep(
    driver: &Driver,
    kind: Kind,
    polls: &mut [pollfd],
    until: Option<u64>,
    mask: Mask,
    call: ReplacedCall,
) -> Woken {
    // Without a node nothing is driven: the caller asks in vain, and then waits without driving.
    let Some(node) = Node::existing() else { return Woken::Ask };
    let spin = match driver.place {
        Some(_) => &node.policy.drivers.spin,
        None => &node.mads.spin,
    };
    let (before, started, costs) = (given(), Instant::now(), node.policy.costs());
    // The program has just looked. What came meanwhile ends the sleep at once.
    let mut slept = spin.is_shortest(costs);
    let mut skips = slept;
    loop {
        let spin_until = Instant::now() + spin.length(costs);
        while !std::mem::take(&mut skips) {
            drive(node, driver, kind, slept);
            if given() != before {
                spin.learn(started.elapsed(), slept, costs);
                return Woken::Ask;
            }
            if Instant::now() >= spin_until {
                break;
            }
            costs.pause();
        }
        node.before_sleep();
        let left = until.map(|until| Duration::from_nanos(until.saturating_sub(monotonic())));
        if left == Some(Duration::ZERO) {
            return Woken::Over;
        }
        let fd = match driver.place {
            Some(_) => Some(node.packets_fd()),
            None => node.mads_fd(),
        };
        let Some((last, own)) = polls.split_last_mut() else { return Woken::Over };
        *last = pollfd { fd: fd.map_or(-1, |fd| fd.as_raw_fd()), events: POLLIN, revents: 0 };
        own.iter_mut().for_each(|poll| poll.revents = 0);
        adverb_threads::note_wait(own_id(), call, polls.as_ptr().addr(), polls.len());
        let mut asleep = driver.place.map(|_| Asleep::begin(node));
        if let Some(place) = driver.place {
            node.policy.drivers.sleeps_on(place, polls.as_ptr().addr());
        }
        slept = true;
        if asleep.as_ref().is_some_and(|asleep| asleep.needless) {
            continue;
        }
        let result = adverb_os::sleep(polls, left, mask, || {
            asleep = None;
            end(driver);
        });
        drop(asleep.take());
        adverb_threads::note_drive(own_id());
        if node.is_stale() {
            // A handler has called `fork`, and this is the child.
            return Woken::Ask;
        }
        let own = &polls[..polls.len() - 1];
        match result {
            Ok(0) => return Woken::Over,
            Ok(_) if own.iter().any(|poll| poll.revents != 0) => {
                // This thread may have taken a doorbell, too.
                drive(node, driver, kind, true);
                let seen = if given() == before { Duration::MAX } else { started.elapsed() };
                spin.learn(seen, true, costs);
                return Woken::Ask;
            }
            Ok(_) => {}
            Err(e) => {
                // This thread may have consumed the ring of a doorbell.
                drive(node, driver, kind, true);
                return Woken::Failed(e.raw_os_error().map_or(Errno::EIO, Errno::from_raw));
            }
        }
    }
}

fn drive(node: &Node, driver: &Driver, kind: Kind, slept: bool) {
    let progress = || match slept {
        true => node.progress_after_sleep(),
        false => node.progress_waiting(),
    };
    match driver.place {
        Some(_) if kind.contains(Kind::MANAGER) => node.with_mads(progress),
        Some(_) => progress(),
        None => node.look_for_mads(),
    };
}

fn monotonic() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |now| Duration::from(now).as_nanos() as u64)
}
