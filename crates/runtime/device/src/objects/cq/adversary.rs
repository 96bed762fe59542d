//! What happens to completion queues, for an [`Adversary`]: a device that tests its program within
//! the rules.
//!
//! An adversary decides when a completion becomes visible, and may have a queue pair carry out its
//! requests late, in parts or a second time, or lose them
//! ([`Qp::keep_requests`](crate::Qp::keep_requests), [`Qp::place_tail`](crate::Qp::place_tail),
//! [`Qp::lose`](crate::Qp::lose), [`Node::read_again`](crate::node::Node::read_again)). Without an
//! adversary each function of the trait costs the check of a field.
use super::Cq;
use adverb_engine::{Completion, PostError, SendWr};
use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

/// Is told what happens to a completion queue, and to the send queues that complete there.
pub trait Adversary: Any + Debug + Send + Sync {
    /// The queue was made.
    fn enters(&self, cq: &Arc<Cq>);
    /// A completion is about to become visible. Answers the completion if it becomes visible now. A
    /// withheld completion is added later by [`Cq::make_visible`], in the order of its work queue.
    /// Called under the lock of the queue pair.
    fn completes(&self, cq: &Arc<Cq>, completion: Completion) -> Option<Completion>;
    /// The program is about to poll.
    fn polls(&self, cq: &Arc<Cq>);
    /// The program polled this completion. Called under the queue's lock.
    fn polled(&self, completion: &Completion);
    /// The completions of a queue pair are removed.
    fn purged(&self, qpn: u32);
    /// A request of a queue pair is about to be staged. Called under the lock of the queue pair, as
    /// the next two functions.
    ///
    /// # Errors
    /// The request is refused.
    fn stages(&self, cq: &Cq, qpn: u32, engine: &adverb_engine::Qp) -> Result<(), PostError>;
    /// A request was staged. `signals_all`: each request of the queue pair completes.
    fn staged(&self, qpn: u32, wr: &SendWr<'_>, signals_all: bool);
    /// The staged requests were committed.
    fn committed(&self, qpn: u32);
}

/// Makes the adversary of the new completion queue with this number, if the queue has one.
pub type Maker = fn(u32) -> Option<Box<dyn Adversary>>;

static MAKER: OnceLock<Maker> = OnceLock::new();

/// Gives an adversary to the queues made from now on. The first maker stays.
pub fn install(maker: Maker) {
    MAKER.get_or_init(|| maker);
}

/// The adversary of a new queue.
pub(crate) fn of_new_queue(number: u32) -> Option<Box<dyn Adversary>> {
    MAKER.get().and_then(|make| make(number))
}
