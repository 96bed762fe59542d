use crate::{RawMutex, RawRwLock};
use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// A rank: a place in the order in which a thread takes locks. [`ranks!`](crate::ranks) makes a
/// table of ranks.
pub trait Rank {
    /// The line in the table. A thread takes only locks with a higher line than all locks it holds.
    const LINE: usize;
    /// The names of all lines. A program has one table.
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

/// The most lines that a table can have.
pub const MOST_RANKS: usize = 128;

thread_local! {
    /// How many locks of each rank the thread holds. The value needs no destructor and no
    /// allocation, so locks work in signal handlers, after a fork, and while the thread ends.
    static HELD: [Cell<u8>; MOST_RANKS] = const { [const { Cell::new(0) }; MOST_RANKS] };
}

/// Panics if the thread holds a lock of the same rank or of a later rank.
#[inline]
#[track_caller]
fn check<R: Rank>() {
    if cfg!(debug_assertions) {
        let later =
            HELD.try_with(|held| (R::LINE..MOST_RANKS).rev().find(|&line| held[line].get() > 0));
        if let Ok(Some(line)) = later {
            refuse::<R>(line);
        }
    }
}

#[cold]
#[track_caller]
fn refuse<R: Rank>(held: usize) -> ! {
    let (wanted, held) = (R::NAMES[R::LINE], R::NAMES[held]);
    panic!(
        "the order of locks: this thread takes the lock of {wanted} while it has that of {held}"
    );
}

/// Changes how many locks of this rank the thread holds.
///
/// A signal handler may run between the load and the store of the count. The handler releases all
/// locks that it has taken, so the count is unchanged afterwards.
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

/// Counts the lock if it was taken (`true`).
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

/// A lock that checks in debug builds whether the thread takes its locks in the order of their
/// ranks.
#[repr(transparent)]
pub struct RankedRaw<L, R> {
    lock: L,
    rank: PhantomData<fn() -> R>,
}

// SAFETY: the guarantees of `RawMutex`. Ranks do not change when the lock is free.
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
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock() };
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: as for `lock_api::RawMutex`.
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

// SAFETY: the guarantees of `RawRwLock`. Ranks do not change when the lock is free.
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
        // SAFETY: the caller holds the lock.
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
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock_exclusive() };
    }
    #[inline]
    fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }
}

// SAFETY: as for `lock_api::RawRwLock`.
unsafe impl<R: Rank> lock_api::RawRwLockFair for RankedRaw<RawRwLock, R> {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        leave::<R>();
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock_shared_fair() };
    }
    unsafe fn unlock_exclusive_fair(&self) {
        leave::<R>();
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.unlock_exclusive_fair() };
    }
    /// The thread may take the lock again, so the ranks are checked again.
    #[inline]
    #[track_caller]
    unsafe fn bump_shared(&self) {
        leave::<R>();
        check::<R>();
        // SAFETY: the caller holds the lock.
        unsafe { self.lock.bump_shared() };
        enter::<R>();
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
