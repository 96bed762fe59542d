//! Which of the objects that programs hold by address exist.
//!
//! An object that was destroyed is refused wherever it is used, a second destruction included. It
//! stays in memory until many others of its kind have ended, so a call of another thread that has
//! it goes on with what it found, and its address is not that of another for a while.

use std::collections::{BTreeSet, VecDeque};

use adverb_sync::Mutex;

use crate::error::{Errno, Outcome};

/// Objects that have ended and stay in memory.
const RESTING: usize = 1024;

/// All objects of a kind.
pub struct Live<T> {
    known: Mutex<Known>,
    kind: core::marker::PhantomData<fn(T)>,
}

struct Known {
    living: BTreeSet<usize>,
    resting: VecDeque<usize>,
}

impl<T> Live<T> {
    /// None.
    pub const fn new() -> Self {
        let known = Known { living: BTreeSet::new(), resting: VecDeque::new() };
        Self { known: Mutex::new(known), kind: core::marker::PhantomData }
    }

    /// A new one.
    pub fn enter(&self, object: T) -> *mut T {
        let at = Box::into_raw(Box::new(object));
        self.known.lock().living.insert(at.expose_provenance());
        at
    }

    /// Is it one that exists? EINVAL if not.
    pub fn check(&self, at: *const T) -> Outcome {
        if self.known.lock().living.contains(&at.addr()) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Ends it for all others; EINVAL if it does not exist.
    pub fn claim(&self, at: *const T) -> Outcome {
        if self.known.lock().living.remove(&at.addr()) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Takes [`Live::claim`] back.
    pub fn restore(&self, at: *const T) {
        self.known.lock().living.insert(at.addr());
    }

    /// Lets what was claimed rest.
    ///
    /// # Safety
    /// It came from [`Live::enter`], was claimed, and comes here once.
    pub unsafe fn rest(&self, at: *mut T) {
        let mut known = self.known.lock();
        known.resting.push_back(at.expose_provenance());
        let oldest = if known.resting.len() > RESTING { known.resting.pop_front() } else { None };
        drop(known);
        if let Some(oldest) = oldest {
            // SAFETY: the caller's word, when it came.
            drop(unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<T>(oldest)) });
        }
    }
}

impl<T> Default for Live<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_ends_once_and_rests() {
        static ALL: Live<u32> = Live::new();
        let first = ALL.enter(7);
        assert_eq!((ALL.check(first), ALL.claim(first)), (Ok(()), Ok(())));
        assert_eq!(
            (ALL.check(first), ALL.claim(first)),
            (Err(Errno(libc::EINVAL)), Err(Errno(libc::EINVAL)))
        );
        ALL.restore(first);
        assert_eq!(ALL.claim(first), Ok(()));
        // SAFETY: claimed just now.
        unsafe { ALL.rest(first) };
        for n in 0..RESTING as u32 - 1 {
            let next = ALL.enter(n);
            assert_ne!(next, first, "its memory rests");
            assert_eq!(ALL.claim(next), Ok(()));
            // SAFETY: as above.
            unsafe { ALL.rest(next) };
        }
        // SAFETY: it rests, and is read by nobody else.
        assert_eq!(unsafe { first.read() }, 7);
        assert_eq!(ALL.check(core::ptr::null()), Err(Errno(libc::EINVAL)));
    }
}
