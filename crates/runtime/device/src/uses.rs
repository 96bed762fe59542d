//! Uses of an object, which decide about `EBUSY`.
use crate::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the users of an object. The count is explicit, because references of passing threads do
/// not count.
#[derive(Debug)]
pub struct Uses {
    what: &'static str,
    count: AtomicUsize,
}

impl Uses {
    pub(crate) fn new(what: &'static str) -> Self {
        Uses { what, count: AtomicUsize::new(0) }
    }
    pub(crate) fn add(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
    }
    pub(crate) fn remove(&self) {
        self.count.fetch_sub(1, Ordering::SeqCst);
    }
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64
    }
    /// EBUSY if the object is in use.
    pub(crate) fn check_unused(&self) -> Result<(), Error> {
        match self.count.load(Ordering::SeqCst) {
            0 => Ok(()),
            n => Err(Error::busy(self.what, n)),
        }
    }
}
