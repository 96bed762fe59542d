use crate::{RawMutex, RawRwLock};
use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// A place in the order in which a thread takes locks. [`ranks!`](crate::ranks) makes a table of
/// them.
pub trait Rank {
    /// The line in the table. A thread takes locks of higher lines than all that the thread has.
    const LINE: usize;
    /// The names of all lines. One program has one table.
    const NAMES: &'static [&'static str];
}

/// Makes a type for each rank of a table, in the order of the lines: outermost first.
///
/// ```
/// use adverb_sync::{Ranked, ranks};
/// ranks! {
///     /// Taken first.
///     House = "the house";
///     /// May be taken in the house.
///     Room = "a room";
/// }
/// let (house, room) = (Ranked::<u8, House>::new(1), Ranked::<u8, Room>::new(2));
/// let in_house = house.lock();
/// assert_eq!(*in_house + *room.lock(), 3);
/// ```
#[macro_export]
macro_rules! ranks {
    ($($(#[$doc:meta])* $rank:ident = $name:literal;)+) => {
        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Line {
            $($rank),+
        }
        const NAMES: &[&str] = &[$($name),+];
        const _: () = assert!(NAMES.len() <= $crate::MOST_RANKS);
        $(
            $(#[$doc])*
            #[derive(Debug)]
            pub enum $rank {}
            impl $crate::Rank for $rank {
                const LINE: usize = Line::$rank as usize;
                const NAMES: &'static [&'static str] = NAMES;
            }
        )+
    };
}

/// Lines of a table.
pub const MOST_RANKS: usize = 128;

thread_local! {
    /// How many locks of each rank the thread has. The value needs no destructor and no allocation,
    /// so locks work in signal handlers, after a fork, and while the thread ends.
    static HELD: [Cell<u8>; MOST_RANKS] = const { [const { Cell::new(0) }; MOST_RANKS] };
}

/// Panics if the thread has a lock of the same rank or of a later one.
#[inline]
#[track_caller]
fn check<R: Rank>() {
    if cfg!(debug_assertions) {
        let later = HELD.try_with(|held| (R::LINE..MOST_RANKS).rev().find(|&line| held[line].get() > 0));
        if let Ok(Some(line)) = later {
            refuse::<R>(line);
        }
    }
}

#[cold]
#[track_caller]
fn refuse<R: Rank>(held: usize) -> ! {
    let (wanted, held) = (R::NAMES[R::LINE], R::NAMES[held]);
    panic!("the order of locks: this thread takes the lock of {wanted} while it has that of {held}");
}

/// The thread has one lock more, or one less, of this rank.
///
/// A signal handler may run between the two steps of a change. The handler lets go of what it has
/// taken, so the count is as before when the handler is done.
#[inline]
fn count<R: Rank>(change: impl FnOnce(u8) -> u8) {
    if cfg!(debug_assertions) {
        let _ = HELD.try_with(|held| held[R::LINE].set(change(held[R::LINE].get())));
    }
}

#[inline]
fn enter<R: Rank>() {
    count::<R>(|n| n.saturating_add(1));
}

/// `true` if the lock was taken, after which the thread has it.
#[inline]
fn entered<R: Rank>(taken: bool) -> bool {
    if taken {
        enter::<R>();
    }
    taken
}

#[inline]
fn leave<R: Rank>() {
    count::<R>(|n| n.saturating_sub(1));
}

/// A lock that checks in debug builds that the thread takes its locks in the order of their ranks.
#[repr(transparent)]
pub struct RankedRaw<L, R> {
    lock: L,
    rank: PhantomData<fn() -> R>,
}

// SAFETY: those of `RawMutex`; the ranks change nothing in when it is free.
unsafe impl<R: Rank> lock_api::RawMutex for RankedRaw<RawMutex, R> {
    const INIT: Self = RankedRaw { lock: RawMutex::INIT, rank: PhantomData };
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        check::<R>();
        self.lock.lock();
        enter::<R>();
    }
    #[inline]
    fn try_lock(&self) -> bool {
        entered::<R>(self.lock.try_lock())
    }
    #[inline]
    unsafe fn unlock(&self) {
        leave::<R>();
        // SAFETY: the caller has the lock.
        unsafe { self.lock.unlock() };
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: as above.
unsafe impl<R: Rank> lock_api::RawMutexTimed for RankedRaw<RawMutex, R> {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> bool {
        entered::<R>(self.lock.try_lock_for(timeout))
    }
    fn try_lock_until(&self, deadline: Instant) -> bool {
        entered::<R>(self.lock.try_lock_until(deadline))
    }
}

// SAFETY: those of `RawRwLock`; the ranks change nothing in when it is free.
unsafe impl<R: Rank> lock_api::RawRwLock for RankedRaw<RawRwLock, R> {
    const INIT: Self = RankedRaw { lock: RawRwLock::INIT, rank: PhantomData };
    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock_shared(&self) {
        check::<R>();
        self.lock.lock_shared();
        enter::<R>();
    }
    #[inline]
    fn try_lock_shared(&self) -> bool {
        entered::<R>(self.lock.try_lock_shared())
    }
    #[inline]
    unsafe fn unlock_shared(&self) {
        leave::<R>();
        // SAFETY: the caller has the lock.
        unsafe { self.lock.unlock_shared() };
    }
    #[inline]
    #[track_caller]
    fn lock_exclusive(&self) {
        check::<R>();
        self.lock.lock_exclusive();
        enter::<R>();
    }
    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        entered::<R>(self.lock.try_lock_exclusive())
    }
    #[inline]
    unsafe fn unlock_exclusive(&self) {
        leave::<R>();
        // SAFETY: the caller has the lock.
        unsafe { self.lock.unlock_exclusive() };
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: as above.
unsafe impl<R: Rank> lock_api::RawRwLockFair for RankedRaw<RawRwLock, R> {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        leave::<R>();
        // SAFETY: the caller has the lock.
        unsafe { self.lock.unlock_shared_fair() };
    }
    unsafe fn unlock_exclusive_fair(&self) {
        leave::<R>();
        // SAFETY: the caller has the lock.
        unsafe { self.lock.unlock_exclusive_fair() };
    }
    /// The thread takes the lock anew, so the ranks are checked anew.
    #[inline]
    #[track_caller]
    unsafe fn bump_shared(&self) {
        leave::<R>();
        check::<R>();
        // SAFETY: the caller has the lock.
        unsafe { self.lock.bump_shared() };
        enter::<R>();
    }
}
