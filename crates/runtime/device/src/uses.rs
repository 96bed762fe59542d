//! Who still uses an object: what `EBUSY` is decided on.
use crate::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts the users of an object. Explicit, because references of threads that are just passing do
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
    /// EBUSY unless nobody uses it.
    pub(crate) fn check_unused(&self) -> Result<(), Error> {
        match self.count.load(Ordering::SeqCst) {
            0 => Ok(()),
            n => Err(Error::busy(self.what, n)),
        }
    }
}
