//! One thread at a time on a queue pair that has chains.
use crate::handles::{Live, this_thread};
use crate::objects::QpObj;
use adverb_sync::lock_api::RawMutex as _;

/// Keeps chains of other threads off a queue pair.
pub struct Alone<'a>(Option<&'a QpObj>);

impl<'a> Alone<'a> {
    /// Waits for the others, unless this thread has a chain open itself: that is the program's
    /// error, but no reason to hang.
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
            // SAFETY: locked in `on`.
            unsafe { obj.wr_lock.unlock() };
        }
    }
}
