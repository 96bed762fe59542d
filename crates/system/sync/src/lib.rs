//! Mutex, reader-writer lock and condition variable over futex(2), with the interface of
//! `lock_api`, and the same locks with a checked order ([`ranks!`]).
//!
//! Why not `parking_lot`: it keeps the threads that wait in one table for the whole process. A
//! child of `fork` inherits the table with its parent's threads in it, which do not exist there and
//! whose memory the child's own threads come to use; a lock of the child that falls into the same
//! bucket then follows a list through foreign bytes. Here the whole state of a lock is in its own
//! words: a child may use locks of its own without fear, take any [`Mutex`] that was free at the
//! fork, and the thread that forked may let go of one that it held, whoever waited for it. Of a
//! [`RwLock`] that holds only if no other thread was in it, waited for it or was leaving it. The
//! standard library's locks are alike in that, but have neither raw locks (needed where a C caller
//! locks in one call and unlocks in another) nor waiting for a bounded time.
//!
//! None of the locks is fair, but a writer that waits keeps new readers out.
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

/// Mutual exclusion over a `T`, without poisoning; a word in size.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// What a locked [`Mutex`] is used through.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// Many readers or one writer of a `T`, without poisoning; two words in size. A thread must not
/// read it twice at once: a writer may wait in between.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// What a [`RwLock`] is read through.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// What a [`RwLock`] is written through.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// A [`Mutex`] with a place in the order of locks: debug builds panic where a thread takes a lock
/// whose rank does not come after the ranks of all locks that the thread has. A release build
/// checks nothing, and the lock costs what a [`Mutex`] costs. Trying never panics.
#[cfg(not(all(test, loom)))]
pub type Ranked<T, R> = lock_api::Mutex<RankedRaw<RawMutex, R>, T>;
/// What a locked [`Ranked`] is used through.
#[cfg(not(all(test, loom)))]
pub type RankedGuard<'a, T, R> = lock_api::MutexGuard<'a, RankedRaw<RawMutex, R>, T>;
/// A [`RwLock`] with a place in the order of locks, as [`Ranked`].
#[cfg(not(all(test, loom)))]
pub type RankedRw<T, R> = lock_api::RwLock<RankedRaw<RawRwLock, R>, T>;
/// What a [`RankedRw`] is read through.
#[cfg(not(all(test, loom)))]
pub type RankedReadGuard<'a, T, R> = lock_api::RwLockReadGuard<'a, RankedRaw<RawRwLock, R>, T>;

#[cfg(all(test, not(loom)))]
mod tests;

#[cfg(all(test, not(loom)))]
mod ranked_tests;

#[cfg(all(test, loom))]
mod loom_tests;
