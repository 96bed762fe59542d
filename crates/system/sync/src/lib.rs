//! Mutex, reader-writer lock and condition variable over futex(2), with the interface of
//! `lock_api`, and the same locks with a checked order ([`ranks!`]).
//!
//! Why not `parking_lot`: its waiting threads are in one table for the whole process. A child of
//! `fork` inherits the table with the parent's threads. These threads do not exist in the child,
//! and new threads of the child may use the same memory. If a lock of the child falls into the same
//! bucket, the child follows a list through unrelated bytes.
//!
//! Here the whole state of a lock is in its own words. So the child of a fork has three guarantees:
//!
//! - The child can use new locks.
//! - The child can take any [`Mutex`] that was free at the fork.
//! - The thread that forked can release a [`Mutex`], even if other threads of the parent waited.
//!
//! For a [`RwLock`] the last two hold only if no other thread held it, waited for it or was leaving
//! it. The standard library's locks behave alike, but lack two functions. A C caller needs raw
//! locks, to lock in one call and unlock in another. Some callers need a wait with a timeout.
//!
//! None of the locks is fair, but a waiting writer keeps new readers out.
//!
//! ```
//! use adverb_sync::Mutex;
//! use std::time::Duration;
//!
//! let count = Mutex::new(0);
//! *count.lock() += 1;
//! let held = count.lock();
//! assert!(count.try_lock_for(Duration::from_millis(1)).is_none());
//! assert_eq!(*held, 1);
//! ```
#![allow(unsafe_code, reason = "the locks' traits and their system calls")]

mod condvar;
mod futex;
mod mutex;
#[cfg(not(all(test, loom)))]
mod ranked;
mod rwlock;

pub use condvar::Condvar;
pub use lock_api;
pub use mutex::RawMutex;
#[cfg(not(all(test, loom)))]
pub use ranked::{MOST_RANKS, Rank, RankedRaw};
pub use rwlock::RawRwLock;

/// Mutual exclusion over a `T`, without poisoning. The lock is one word in size.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// The guard of a locked [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// Many readers or one writer of a `T`, without poisoning. The lock is two words in size. A thread
/// must not take a read lock twice at once: a writer may wait in between.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// The guard of a [`RwLock`] that is locked for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;

/// A [`Mutex`] with a place in the lock order. A thread may take a lock only if its rank comes
/// after the ranks of all locks that the thread holds; otherwise debug builds panic. A release
/// build checks nothing, and the lock costs as much as a [`Mutex`]. Trying never panics.
#[cfg(not(all(test, loom)))]
pub type Ranked<T, R> = lock_api::Mutex<RankedRaw<RawMutex, R>, T>;
/// The guard of a locked [`Ranked`].
#[cfg(not(all(test, loom)))]
pub type RankedGuard<'a, T, R> = lock_api::MutexGuard<'a, RankedRaw<RawMutex, R>, T>;
/// A [`RwLock`] with a place in the lock order, as [`Ranked`].
#[cfg(not(all(test, loom)))]
pub type RankedRw<T, R> = lock_api::RwLock<RankedRaw<RawRwLock, R>, T>;
/// The guard of a [`RankedRw`] that is locked for reading.
#[cfg(not(all(test, loom)))]
pub type RankedReadGuard<'a, T, R> = lock_api::RwLockReadGuard<'a, RankedRaw<RawRwLock, R>, T>;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, loom))]
mod loom_tests;
