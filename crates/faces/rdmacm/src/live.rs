//! Registry of the objects that programs hold by address.
//!
//! Every use of a destroyed object is refused, including a second destruction. The memory of a
//! destroyed object stays valid until many more objects of its kind have been destroyed. So a call
//! in another thread can finish with the object, and its address is not reused for a while.

use std::collections::{BTreeSet, VecDeque};

use adverb_sync::Mutex;

use crate::error::{Errno, ErrnoResult};

/// Number of destroyed objects kept in memory.
const RESTING: usize = 1024;

/// All objects of one kind.
pub struct Live<T> {
    known: Mutex<Known>,
    kind: core::marker::PhantomData<fn(T)>,
}

struct Known {
    living: BTreeSet<usize>,
    resting: VecDeque<usize>,
}

impl<T> Live<T> {
    /// Creates an empty registry.
    pub(crate) const fn new() -> Self {
        let known = Known { living: BTreeSet::new(), resting: VecDeque::new() };
        Self { known: Mutex::new(known), kind: core::marker::PhantomData }
    }

    /// Adds a new object.
    pub fn enter(&self, object: T) -> *mut T {
        let at = Box::into_raw(Box::new(object));
        self.known.lock().living.insert(at.expose_provenance());
        at
    }

    /// EINVAL if the object does not exist.
    pub fn check(&self, at: *const T) -> ErrnoResult {
        if self.known.lock().living.contains(&at.addr()) {
            Ok(())
        } else {
            Err(Errno(libc::EINVAL))
        }
    }

    /// Ends the object for all other callers; EINVAL if the object does not exist.
    pub fn claim(&self, at: *const T) -> ErrnoResult {
        if self.known.lock().living.remove(&at.addr()) { Ok(()) } else { Err(Errno(libc::EINVAL)) }
    }

    /// Undoes [`Live::claim`].
    pub fn restore(&self, at: *const T) {
        self.known.lock().living.insert(at.addr());
    }

    /// Keeps a claimed object in memory for a while, then frees it.
    ///
    /// # Safety
    /// The pointer is from [`Live::enter`] and was claimed. It is passed here once.
    pub unsafe fn rest(&self, at: *mut T) {
        let mut known = self.known.lock();
        known.resting.push_back(at.expose_provenance());
        let oldest = if known.resting.len() > RESTING { known.resting.pop_front() } else { None };
        drop(known);
        if let Some(oldest) = oldest {
            // SAFETY: the caller's word of the earlier call that passed this pointer.
            drop(unsafe { Box::from_raw(core::ptr::with_exposed_provenance_mut::<T>(oldest)) });
        }
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
        // SAFETY: the memory is still allocated, and no other thread accesses it.
        assert_eq!(unsafe { first.read() }, 7);
        assert_eq!(ALL.check(core::ptr::null()), Err(Errno(libc::EINVAL)));
    }
}
