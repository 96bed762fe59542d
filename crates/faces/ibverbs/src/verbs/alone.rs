//! Lets one thread at a time use a queue pair that has chains.
use crate::handles::{Live, this_thread};
use crate::objects::QpObj;
use adverb_sync::lock_api::RawMutex as _;

/// Keeps the chains of other threads away from a queue pair.
pub struct Alone<'a>(Option<&'a QpObj>);

impl<'a> Alone<'a> {
    /// Waits for the other threads. If this thread itself has an open chain, the call does not
    /// wait: that is an error of the program, but a hang would be worse.
    #[inline]
    pub fn on(obj: &'a Live<QpObj>) -> Self {
        let waits = obj.extended && obj.holder() != this_thread();
        if waits {
            obj.wr_lock.lock();
        }
        Alone(waits.then_some(&**obj))
    }
}

impl Drop for Alone<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(obj) = self.0 {
            // SAFETY: `on` locked it.
            unsafe { obj.wr_lock.unlock() };
        }
    }
}
