//! A completion queue as the node shows it to other processes of the user.
use crate::snapshot::Queue;
use adverb_engine::Time;
use std::sync::Arc;

/// A completion queue as a page shows it.
pub(crate) trait ShownQueue {
    /// The number of the queue.
    fn number(&self) -> u32;
    /// The state of the queue. `closely`: with the threads that wait for the queue's events, which
    /// costs a few system calls a thread.
    fn show(self: Arc<Self>, now: Time, closely: bool) -> Queue;
}
