//! Threads of the program that wait for events, and drive the device while they wait.
//!
//! A thread enters when its call begins to wait, and leaves when the call returns. In between it
//! sleeps on the sockets, or receives. So the background thread stays off the sockets
//! ([`Drivers::relieve`]), and a packet wakes one thread. The last thread that leaves wakes the
//! background thread, which looks after the sockets if the program does not come back soon.
use super::spin::Spin;
use crate::own_id::own_id;
use adverb_engine::Time;
use adverb_threads::Task;
use adverb_threads::call::{Call, Line};
use nix::libc::SYS_ppoll;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

/// Most threads that are known to drive at once. Further threads drive as well, and the background
/// thread does not know.
const MOST: usize = 16;
/// The same for threads that wait without driving.
const MOST_OTHERS: usize = 64;

/// The waiting threads of the program.
#[derive(Debug, Default)]
pub(crate) struct Drivers {
    threads: ThreadPlaces<MOST>,
    /// The address of the descriptors on which each of them sleeps. 0: not known.
    arrays: [AtomicUsize; MOST],
    /// How many threads have left so far.
    left: AtomicU64,
    /// Threads that wait without driving, because another thread drove.
    others: ThreadPlaces<MOST_OTHERS>,
    /// The background thread sleeps, and not on the sockets.
    relieved: AtomicBool,
    /// Time of the last [`Drivers::look`].
    looked: AtomicU64,
    /// How long a thread that waits in `poll` or `epoll_wait` spins before it sleeps.
    pub(crate) spin: Spin,
}

impl Drivers {
    /// The calling thread begins to drive. Returns the thread's place.
    pub(crate) fn enter(&self) -> Option<usize> {
        // The thread may have left its last wait by `longjmp`.
        if let Some(own) = self.own_place() {
            return Some(own);
        }
        let place = self.threads.enter()?;
        self.arrays[place].store(0, Ordering::Relaxed);
        Some(place)
    }

    /// The thread at this place sleeps in a `ppoll` of these descriptors.
    pub(crate) fn sleeps_on(&self, place: usize, array: usize) {
        self.arrays[place].store(array, Ordering::Relaxed);
    }

    /// The place of the calling thread, which has not left it: its wait ended by `longjmp`, or goes
    /// on after a handler.
    pub(crate) fn own_place(&self) -> Option<usize> {
        self.threads.own()
    }

    /// As [`Drivers::enter`], unless another thread drives already. Then the calling thread waits
    /// without driving, until [`Drivers::other_leaves`].
    pub(crate) fn enter_alone(&self) -> Option<usize> {
        let place = if self.own_place().is_some() || !self.any() { self.enter() } else { None };
        if place.is_none() {
            // A further thread is not known. Another of these threads most likely waits as long.
            let _ = self.others.enter();
        }
        place
    }

    /// A thread that did not drive waits no more.
    pub(crate) fn other_leaves(&self) {
        if let Some(place) = self.others.own() {
            self.others.leave(place);
        }
    }

    /// Do threads of the program wait, and none of them drives? Then the background thread drives.
    pub(crate) fn are_missing(&self) -> bool {
        self.others.any() && !self.any()
    }

    /// The thread at this place does not drive any more. `true`: the background thread has to be
    /// woken, `away` if it is away from the sockets. For the thread itself.
    pub(crate) fn leave(&self, place: usize, away: bool) -> bool {
        self.threads.leave(place);
        self.left.fetch_add(1, Ordering::SeqCst);
        let relieved = self.relieved.load(Ordering::SeqCst);
        relieved && !self.any() || away && self.are_missing()
    }

    /// Does the background thread wake up, or look, soon after the last driver has left?
    pub(super) fn wakes_thread(&self) -> bool {
        self.relieved.load(Ordering::Relaxed)
    }

    /// Do waits of the program drive, as far as is known?
    pub(super) fn are_known(&self) -> bool {
        self.left() != 0
    }

    /// Does a thread drive?
    pub(crate) fn any(&self) -> bool {
        self.threads.any()
    }

    /// How many threads have left so far.
    pub(super) fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// The background thread is about to sleep. `true`: it need not watch the sockets, and is woken
    /// when no thread drives any more.
    pub(super) fn relieve(&self) -> bool {
        // A thread that leaves clears its place, and then reads this word.
        self.relieved.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let any = self.any();
        self.relieved.store(any, Ordering::SeqCst);
        any
    }

    /// The background thread is awake.
    pub(super) fn recall(&self) {
        self.relieved.store(false, Ordering::SeqCst);
    }

    /// Forgets threads that do not sleep in a `ppoll`: a thread may leave its wait by `longjmp`.
    /// For the background thread. Does nothing if the last look is less than `interval` ago.
    pub(super) fn look(&self, now: Time, interval: Duration) {
        if now < Time(self.looked.load(Ordering::Relaxed)) + interval {
            return;
        }
        self.looked.store(now.0, Ordering::Relaxed);
        for (thread, array) in self.threads.0.iter().zip(&self.arrays) {
            let array = array.load(Ordering::Relaxed) as u64;
            // A handler may wait in a `ppoll` of its own.
            let sleeps = |call: Call| {
                call.number == SYS_ppoll && (array == 0 || call.first_argument() == array)
            };
            forget_unless(thread, |line| matches!(line, Line::Blocked(call) if sleeps(call)));
        }
        // Such a thread may be about to wait, so only its end counts.
        for thread in &self.others.0 {
            forget_unless(thread, |_| true);
        }
    }
}

/// Forgets a thread that has ended, or is not where it should be.
fn forget_unless(thread: &AtomicI32, is_there: impl Fn(Line) -> bool) {
    let id = thread.load(Ordering::Relaxed);
    let stays = || match Task::own(id).line() {
        Ok(line) => is_there(line),
        // The thread has ended, or the kernel does not show its call.
        Err(e) => e.kind() == ErrorKind::PermissionDenied,
    };
    if id != 0 && !stays() {
        let _ = thread.compare_exchange(id, 0, Ordering::SeqCst, Ordering::Relaxed);
    }
}

/// Threads by number. 0: a free place. A thread that does not drive may be cancelled, and is
/// forgotten by [`Drivers::look`].
#[derive(Debug)]
struct ThreadPlaces<const N: usize>([AtomicI32; N]);

impl<const N: usize> Default for ThreadPlaces<N> {
    fn default() -> Self {
        ThreadPlaces([const { AtomicI32::new(0) }; N])
    }
}

impl<const N: usize> ThreadPlaces<N> {
    /// Takes a free place for the calling thread.
    fn enter(&self) -> Option<usize> {
        let id = own_id();
        let claim = |thread: &AtomicI32| {
            thread.compare_exchange(0, id, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        };
        self.0.iter().position(claim)
    }

    /// The place of the calling thread.
    fn own(&self) -> Option<usize> {
        let id = own_id();
        self.0.iter().position(|thread| thread.load(Ordering::Relaxed) == id)
    }

    /// Frees the place, unless another thread has it by now.
    fn leave(&self, place: usize) {
        let _ = self.0[place].compare_exchange(own_id(), 0, Ordering::SeqCst, Ordering::Relaxed);
    }

    fn any(&self) -> bool {
        self.0.iter().any(|thread| thread.load(Ordering::SeqCst) != 0)
    }
}
